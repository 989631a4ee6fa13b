// Observes the passes of a compilation, for timing and for test coverage.
#pragma once

#include <functional>
#include <string_view>

#include "graph/passes/stage_graphs.h"

namespace penstock {

// Called with an empty name before the first pass, then after each pass that ran. `graphs` are
// valid during the call.
using PassObserver =
    std::function<void(std::string_view pass, double seconds, StageGraphs& graphs)>;

// While it exists, RunPasses calls the observer on the thread that constructed it. The same thread
// destroys it. Requires: the thread has no other ScopedPassObserver.
class ScopedPassObserver {
 public:
  explicit ScopedPassObserver(PassObserver observer);
  ~ScopedPassObserver();
  ScopedPassObserver(const ScopedPassObserver&) = delete;
  ScopedPassObserver& operator=(const ScopedPassObserver&) = delete;

  // Returns the calling thread's observer, or null.
  static const PassObserver* Current();

 private:
  PassObserver observer_;
};

}  // namespace penstock
