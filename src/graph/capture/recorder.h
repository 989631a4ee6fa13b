// Recorder: turns the ops of a thread into a Graph, one by one, while they run.
//
// What a tensor is, is where it lies: its storage, and its place in it. Each storage has a root,
// the value that its memory now means; any other tensor there is a view of the root. An in-place op
// makes a new value, and the storage's root becomes that one: later reads through any view see it.
// Ownership: keeps every storage alive, so that a storage's address stays its identity.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "graph/ir/ir.h"

namespace penstock {

// Thrown through the captured code to stop a capture; what() says what was refused.
class CaptureRefused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A random op that takes a generator draws from a run's own, so that replays draw the same numbers.
bool TakesGenerator(const c10::FunctionSchema& schema);

class Recorder {
 public:
  Graph& graph() { return graph_; }
  void set_phase(Phase phase) { phase_ = phase; }

  // Names a tensor that is there before the first op.
  ValueId DefineInput(const at::Tensor& tensor);
  ValueId DefineBound(const at::Tensor& tensor, Bound bound);
  // The value that the tensor means now; a tensor never seen before is a constant.
  ValueId Use(const at::Tensor& tensor);
  // Runs the op on the stack below capture, and records it. Throws CaptureRefused.
  void Run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

 private:
  using ViewKey = std::tuple<ValueId, std::int64_t, c10::ScalarType, std::vector<std::int64_t>,
                             std::vector<std::int64_t>>;
  struct Memory {
    ValueId root;
    at::Tensor tensor;  // the root's: keeps the storage alive
    bool made_here;     // by a node, so that an in-place change is ours to follow
  };

  ValueId Define(const at::Tensor& tensor, bool made_here);
  bool Knows(const at::Tensor& tensor) const;
  Argument ToArgument(const c10::IValue& value);
  void RecordResults(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
                     c10::ArrayRef<c10::IValue> results);
  void RecordInPlace(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);
  void Rebind(const at::Tensor& changed, const at::Tensor& result, ValueId now);
  void Append(const c10::OperatorHandle& op, std::vector<Argument> arguments, ValueId output);

  Graph graph_;
  Phase phase_ = Phase::kForward;
  std::unordered_map<const c10::StorageImpl*, Memory> memory_;
  std::map<ViewKey, ValueId> views_;
};

}  // namespace penstock
