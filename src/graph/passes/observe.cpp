#include "graph/passes/observe.h"

#include "base/result.h"

namespace penstock {
namespace {

thread_local const PassObserver* current_observer = nullptr;

}  // namespace

ObservePasses::ObservePasses(PassObserver observer) : observer_(std::move(observer)) {
  PENSTOCK_CHECK(current_observer == nullptr, "the thread's passes are observed already");
  current_observer = &observer_;
}

ObservePasses::~ObservePasses() { current_observer = nullptr; }

const PassObserver* ObservePasses::Current() { return current_observer; }

}  // namespace penstock
