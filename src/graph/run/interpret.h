// Running a graph: a reference that is slow and obvious, and a program that is fast.
//
// Both run below autograd on the values they are given and repeat the captured ops exactly.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/stack.h>

#include <memory>
#include <span>
#include <vector>

#include "graph/ir/ir.h"

namespace penstock {

// The memory that a graph's bound parameters and gradients stand for, by parameter index. Constants
// are in the graph. Parameters and gradients that the graph names must be there.
struct GraphBinding {
  std::vector<at::Tensor> parameters = {};
  std::vector<at::Tensor> gradients;
  // What random ops draw from; undefined: the process's own. Who runs the graph seeds it before a
  // run, so that a microbatch's numbers do not depend on the schedule.
  at::Generator generator = {};
};

// A constant argument as a run passes it: the binding's generator where the op takes one.
c10::IValue RunConstant(const c10::IValue& constant, const c10::Type& type,
                        const GraphBinding& binding);

// Runs the graph node by node and checks that every result has the type that was captured. The
// reference that passes and GraphProgram are tested against. Throws InternalError where a type
// differs.
std::vector<at::Tensor> RunReference(const Graph& graph, const GraphBinding& binding,
                                     std::span<const at::Tensor> inputs);

// Runs the graph as RunReference does and says how long the call of each node took, in seconds.
std::vector<double> TimeReference(const Graph& graph, const GraphBinding& binding,
                                  std::span<const at::Tensor> inputs);

struct ProgramCode;

// A graph as a flat list of calls on numbered slots: made once, run often. A run looks nothing up
// and allocates nothing of its own; a value is released at its last use, and what does not leave
// the run lies in the thread's arena (arena.h). Views cost no dispatch.
// Ownership: keeps what it is bound to. Threads: one at a time.
class GraphProgram {
 public:
  // Requires: VerifyGraph(graph) holds and the binding has what the graph names.
  GraphProgram(const Graph& graph, const GraphBinding& binding);
  ~GraphProgram();
  GraphProgram(GraphProgram&&) noexcept;
  GraphProgram& operator=(GraphProgram&&) noexcept;

  // Takes the inputs (they are empty after) and leaves the outputs; undefined for kNoValue.
  // Inputs have the captured type; an op's exception leaves the program ready for the next run.
  void Run(std::span<at::Tensor> inputs, std::span<at::Tensor> outputs);

  int instructions() const;  // calls and views of a run
  // Most bytes at once of what a run makes (memory_plan.h), and of the thread's arena that it uses.
  std::int64_t peak_bytes() const;
  std::int64_t arena_bytes() const;

 private:
  std::unique_ptr<ProgramCode> code_;
};

}  // namespace penstock
