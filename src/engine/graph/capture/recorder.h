// Recorder: appends each op of a thread to a Graph as it runs.
//
// A tensor is identified by its storage and its position in it. Each storage has a root, the value
// that its memory currently stands for. Any other tensor on the storage is a view of the root. An
// in-place op creates a new value and makes it the storage's root, so that later reads through any
// view see it.
// Ownership: keeps every storage alive, so that its address identifies it.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/ir/ir.h"

namespace penstock {

// Has captures of this thread fail once they have recorded the node of this number, so that the
// error has the line of its code. Empty `why`: they do not fail.
void StopCaptureAfter(std::size_t node, std::string why);

class Recorder {
 public:
  // `numbers_random_ops`: see StageSpec. With `is_exclusive`, no other thread uses the process's
  // generator, so random ops that start from the same state of it are the same draw.
  Recorder(bool numbers_random_ops, bool is_exclusive)
      : numbers_random_ops_(numbers_random_ops), is_exclusive_(is_exclusive) {}
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  Graph& graph() { return graph_; }
  void set_phase(Phase phase) { phase_ = phase; }

  // Registers a tensor that exists before the first op.
  ValueId DefineInput(const at::Tensor& tensor);
  ValueId DefineBound(const at::Tensor& tensor, Bound bound);
  // Registers a tensor that ops may update. The recorder's end restores its content.
  void DefineBuffer(const at::Tensor& tensor, const std::string& name);
  // Returns whether an op has updated the buffer.
  bool IsUpdated(const at::Tensor& buffer) const;
  // Returns the value that the tensor currently stands for. An unknown tensor becomes a constant or
  // a tensor that runs read, as ForeignScope says; RejectForeign may refuse it.
  ValueId Use(const at::Tensor& tensor);
  // Returns whether an op has computed the tensor, or it was defined or used.
  bool Knows(const at::Tensor& tensor) const;
  // Throws CaptureError if one of these values depends on an unknown tensor that requires a
  // gradient, or that ForeignScope refuses: as a constant, it would get no gradient and keep its
  // first value.
  void RejectForeign(std::span<const ValueId> outputs) const;
  // Returns whether the tensor has the same values in every run. Binds it if it is unknown.
  bool IsConstant(const at::Tensor& tensor);
  // Runs the op on the stack below capture and records it. Throws CaptureError.
  void Run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

 private:
  using ViewKey = std::tuple<ValueId, std::int64_t, c10::ScalarType, std::vector<std::int64_t>,
                             std::vector<std::int64_t>>;
  struct Memory {
    ValueId root;
    at::Tensor tensor;  // of the root; keeps the storage alive
    bool may_mutate;    // a node produced it, or it is a buffer
  };

  ValueId Define(const at::Tensor& tensor, bool may_mutate);
  bool IsBound(ValueId id) const;
  // Binds an unknown tensor.
  void BindForeign(const at::Tensor& tensor);
  void BindUnknown(const torch::jit::Stack& arguments);
  // Remembers the bound value if it is foreign, see RejectForeign.
  void NoteForeign(ValueId id, const at::Tensor& tensor);
  Argument ToArgument(const c10::IValue& value);
  // Returns the arguments of a node that calls `op`.
  std::vector<Argument> ToArguments(const c10::OperatorHandle& op,
                                    const torch::jit::Stack& arguments);
  // Numbers a random op that is about to run. Ops that start from the same state of their generator
  // (activation checkpointing restores it) draw the same numbers, so they have one number.
  void NumberRandomOp(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);
  // Makes a tensor of at::empty that code has filled without an op (at::tensor) a constant.
  void BindFilled(const c10::StorageImpl* storage);
  // Returns the value of a tensor whose memory has the conjugate or negative values.
  ValueId UseResolved(const at::Tensor& tensor);
  // Runs an op that stores its result in an argument: as the op that returns it, and a copy.
  void RunOut(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);
  // Throws CaptureError if the results depend on the number of rows of the example.
  bool RowsVary(const Node& node) const;
  void RecordResults(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
                     c10::ArrayRef<c10::IValue> results);
  void RecordInPlace(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);
  // Whether the tensors have the same values in every run, because no input, parameter or buffer
  // affects them. Then code may depend on these values.
  bool AreConstant(const torch::jit::Stack& arguments) const;
  void NoteConstants(const Node& node);
  // Replaces the op and its arguments on the stack, and returns true, if the op is a batch
  // normalization that updates running statistics.
  bool RecordBatchNorm(const c10::OperatorHandle& op, torch::jit::Stack* stack);
  // Keeps the content of a buffer that the captured code is about to change.
  void SaveBuffer(const at::Tensor& tensor);
  void Rebind(const at::Tensor& mutated, const at::Tensor& result, ValueId value);

  const bool numbers_random_ops_;
  const bool is_exclusive_;
  std::unordered_map<std::string, std::int64_t> random_ops_;  // by state of the generator
  std::optional<std::int64_t> random_op_;                     // of the op that runs
  Graph graph_;
  Phase phase_ = Phase::kForward;
  std::unordered_map<const c10::StorageImpl*, Memory> memory_;
  std::map<ViewKey, ValueId> views_;
  std::unordered_set<const c10::StorageImpl*> empty_;             // no op has written to them
  std::unordered_set<ValueId> constants_;                         // roots that are constant
  std::map<ValueId, std::string> foreign_;                        // why each is refused
  std::unordered_map<const c10::StorageImpl*, ValueId> buffers_;  // by storage: the initial value
  std::vector<std::pair<at::Tensor, at::Tensor>>
      saved_;  // buffers and their content before capture
};

}  // namespace penstock
