// Executors of a graph: a slow and obvious reference, and a fast program.
//
// Both run below autograd on the given values and repeat the captured ops exactly.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/stack.h>

#include <memory>
#include <span>
#include <vector>

#include "graph/ir/ir.h"

namespace penstock {

// The memory of a graph's bound parameters and gradients, by parameter index. Constants are in the
// graph. Must contain all parameters and gradients that the graph names.
struct GraphBinding {
  std::vector<at::Tensor> parameters = {};
  std::vector<at::Tensor> gradients;
  // The generator that random ops draw from; if undefined, the process's own. The caller seeds it
  // before a run, so that the numbers of a microbatch do not depend on the schedule.
  at::Generator generator = {};
};

// Returns a constant argument as a run passes it: the binding's generator if the op takes one.
c10::IValue RunConstant(const c10::IValue& constant, const c10::Type& type,
                        const GraphBinding& binding);

// Runs the graph node by node and checks that every result has the captured type. Serves as the
// reference in tests of passes and GraphProgram. Throws InternalError if a type differs.
std::vector<at::Tensor> RunReference(const Graph& graph, const GraphBinding& binding,
                                     std::span<const at::Tensor> inputs);

// Runs the graph like RunReference and returns how long the call of each node took, in seconds.
std::vector<double> TimeReference(const Graph& graph, const GraphBinding& binding,
                                  std::span<const at::Tensor> inputs);

struct ProgramCode;

// A graph as a flat list of calls on numbered slots: built once, run often. A run does no lookups
// and allocates nothing itself. A value is freed after its last use, and values that do not leave
// the run are in the thread's arena (arena.h). Views cost no dispatch.
// Ownership: keeps what it is bound to alive. Threads: one at a time.
class GraphProgram {
 public:
  // Requires: VerifyGraph(graph) succeeds and the binding contains what the graph names.
  GraphProgram(const Graph& graph, const GraphBinding& binding);
  ~GraphProgram();
  GraphProgram(GraphProgram&&) noexcept;
  GraphProgram& operator=(GraphProgram&&) noexcept;

  // Consumes the inputs (they are empty afterwards) and fills the outputs; they are undefined for
  // kNoValue. Inputs must have the captured types. After an op throws, the program is ready for the
  // next run.
  void Run(std::span<at::Tensor> inputs, std::span<at::Tensor> outputs);

  int instructions() const;  // calls and views per run
  // Peak bytes of the values that a run produces (memory_plan.h), and of the thread's arena that it
  // uses.
  std::int64_t peak_bytes() const;
  std::int64_t arena_bytes() const;

 private:
  std::unique_ptr<ProgramCode> code_;
};

}  // namespace penstock
