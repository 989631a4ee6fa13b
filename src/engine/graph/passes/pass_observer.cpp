#include "graph/passes/pass_observer.h"

#include "base/result.h"

namespace penstock {
namespace {

thread_local const PassObserver* current_observer = nullptr;

}  // namespace

ScopedPassObserver::ScopedPassObserver(PassObserver observer) : observer_(std::move(observer)) {
  PENSTOCK_CHECK(current_observer == nullptr, "this thread already has a pass observer");
  current_observer = &observer_;
}

ScopedPassObserver::~ScopedPassObserver() { current_observer = nullptr; }

const PassObserver* ScopedPassObserver::Current() { return current_observer; }

}  // namespace penstock
