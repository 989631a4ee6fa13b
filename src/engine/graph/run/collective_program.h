// CollectiveProgram: a graph with one collective, run in two parts so that its caller computes
// while the data moves.
#pragma once

#include <vector>

#include "graph/ir/ir.h"
#include "graph/ops/collective.h"
#include "graph/run/interpret.h"

namespace penstock {

// Threads: one at a time.
class CollectiveProgram {
 public:
  // The graph has no inputs and one collective, which uses `end` in place of its group. The tensors
  // of the binding stay alive; `end` must outlive the program. The collective reads a bound value,
  // which must not change while it is in flight.
  CollectiveProgram(const Graph& graph, const GraphBinding& binding, GroupEnd& end);

  // Runs the nodes before the collective and starts it. Requires: it is not in flight.
  // Errors: throws std::runtime_error, as Wait does.
  void Start();
  bool in_flight() const { return in_flight_; }
  // Waits for the collective and runs the nodes after it. Returns the outputs of the graph, which
  // the caller moves out. Requires: it is in flight. It is not afterwards, even after an error.
  std::vector<at::Tensor>& Wait();

 private:
  int group_;
  GroupEnd& end_;
  GraphProgram start_, wait_;
  std::vector<at::Tensor> kept_;  // between the parts: the ticket
  std::vector<at::Tensor> outputs_;
  bool in_flight_ = false;
};

}  // namespace penstock
