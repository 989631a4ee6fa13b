// Interpreters of a graph: a slow and simple reference, and a fast program.
//
// Both run below autograd and repeat the captured ops exactly.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/stack.h>

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "graph/ir/ir.h"

namespace penstock {

class GroupEnd;

// The tensors of a graph's bound values. Must contain all that the graph binds. The graph itself
// contains its constants. Parameters and gradients are by parameter index.
struct GraphBinding {
  std::vector<at::Tensor> parameters = {};
  std::vector<at::Tensor> gradients = {};
  // The generator of random ops; the default generator if undefined. The caller seeds it before
  // each run, so that the numbers of a microbatch do not depend on the schedule. An op that has a
  // number seeds it again, from that seed and `first_random_op` plus the number.
  at::Generator generator = {};
  std::int64_t first_random_op = 0;
  c10::Device device = c10::kCPU;  // of all tensors
  // Only with sharded parameters; see BoundKind.
  at::Tensor weight_shard = {};
  at::Tensor unreduced_gradients = {};
  at::Tensor gradient_shard = {};
  // Groups by number that a GraphProgram's collectives use and its thread has not joined
  // (collective.h). They must outlive the program.
  std::vector<std::pair<int, GroupEnd*>> groups = {};
};

// Returns the tensor of a bound value.
const at::Tensor& BoundTensor(const Bound& bound, const GraphBinding& binding);

// Returns the number of the random op if the constant is one. Then a run with a generator seeds it.
std::optional<std::int64_t> RandomOpOf(const c10::IValue& constant, const c10::Type& type,
                                       const GraphBinding& binding);
// Returns the constant that a run passes: the binding's generator for a generator argument, else
// `constant`.
c10::IValue RunConstant(const c10::IValue& constant, const c10::Type& type,
                        const GraphBinding& binding);

// Runs the graph node by node and checks that every result has its captured type. Tests compare
// passes and GraphProgram with it. Errors: throws InternalError if a type differs.
std::vector<at::Tensor> RunReference(const Graph& graph, const GraphBinding& binding,
                                     std::span<const at::Tensor> inputs);

struct ProgramCode;

// A graph as a flat list of calls on numbered slots, built once and run often. A run does no
// lookups and allocates nothing except results. It frees a value after its last use, keeps values
// that do not outlive the run in the thread's arena (arena.h), and creates views without the
// dispatcher. Ownership: keeps the tensors of the binding alive. Threads: one at a time.
class GraphProgram {
 public:
  // Requires: VerifyGraph(graph) succeeds, and the binding contains what the graph binds.
  GraphProgram(const Graph& graph, const GraphBinding& binding);
  ~GraphProgram();
  GraphProgram(GraphProgram&&) noexcept;
  GraphProgram& operator=(GraphProgram&&) noexcept;

  // Moves from the inputs and sets the outputs; an output of kNoValue is undefined. If an op
  // throws, the program can run again. Requires: the inputs have the captured types.
  void Run(std::span<at::Tensor> inputs, std::span<at::Tensor> outputs);

  int instructions() const;  // calls and views per run
  // Peak bytes of the values that a run produces (memory_plan.h), and bytes that it needs in the
  // thread's arena.
  std::int64_t peak_bytes() const;
  std::int64_t arena_bytes() const;

 private:
  std::unique_ptr<ProgramCode> code_;
};

}  // namespace penstock
