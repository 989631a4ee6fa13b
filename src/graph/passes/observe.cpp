#include "graph/passes/observe.h"

#include "base/result.h"

namespace penstock {
namespace {

thread_local const PassObserver* current = nullptr;

}  // namespace

ObservePasses::ObservePasses(PassObserver observer) : observer_(std::move(observer)) {
  PENSTOCK_CHECK(current == nullptr, "the thread's passes are observed already");
  current = &observer_;
}

ObservePasses::~ObservePasses() { current = nullptr; }

const PassObserver* ObservePasses::Current() { return current; }

}  // namespace penstock
