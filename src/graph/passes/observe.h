// Watching the passes of a compilation: how long each takes, and what it leaves.
#pragma once

#include <functional>
#include <string_view>

#include "graph/passes/stage_graphs.h"

namespace penstock {

// Called once before the first pass, with an empty name, then after each pass that ran.
using PassObserver =
    std::function<void(std::string_view pass, double seconds, StageGraphs& graphs)>;

// While it lives, RunPasses calls the observer in this thread. One at a time in a thread.
class ObservePasses {
 public:
  explicit ObservePasses(PassObserver observer);
  ~ObservePasses();
  ObservePasses(const ObservePasses&) = delete;
  ObservePasses& operator=(const ObservePasses&) = delete;

  // Of this thread; null where there is none.
  static const PassObserver* Current();

 private:
  PassObserver observer_;
};

}  // namespace penstock
