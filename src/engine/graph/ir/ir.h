// The graph of a stage as plain data: tensors as numbered values, ATen calls as nodes.
//
// Graphs are in single assignment form. A value is an input, a bound value (such as a parameter),
// the result of one node, or a view of one of these. Views are not nodes: they contain their
// position in the memory of their root, so that passes need not handle them and a run creates them
// at almost no cost. All pieces of a joint graph share its value numbers.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <deque>
#include <string>
#include <variant>
#include <vector>

namespace penstock {

using ValueId = std::int32_t;
inline constexpr ValueId kNoValue = -1;

struct TensorType {
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  // Whether the first size differs from run to run, like the number of rows that a rank's experts
  // receive; `sizes` then has the size for a balanced load. Such a value has no views, only
  // pointwise ops and ops that know the number of rows read it, and it takes memory of its own.
  bool rows_vary = false;

  friend bool operator==(const TensorType&, const TensorType&) = default;
};
TensorType TypeOf(const at::Tensor& tensor);
// Returns the bytes of a dense tensor of this type.
std::int64_t BytesOf(const TensorType& type);
bool IsContiguous(const TensorType& type);
// Returns whether a tensor may be a value of this type.
bool Fits(const at::Tensor& tensor, const TensorType& type);
TensorType ContiguousType(c10::ScalarType dtype, std::vector<std::int64_t> sizes);
// Returns the distance from the first element to past the last one, in elements.
std::int64_t ExtentOf(const TensorType& type);

struct TensorValue {
  TensorType type;
  // For a view: its root, which is not a view, and its offset from the root's first element, in
  // elements of the view's dtype. kNoValue if it is not a view.
  ValueId view_of = kNoValue;
  std::int64_t view_offset = 0;
};

// A tensor value, a list of tensor values (kNoValue if absent), or a constant. A constant for a
// generator is the number of the random op (random_ops.h), or None if it has none.
using Argument = std::variant<ValueId, std::vector<ValueId>, c10::IValue>;

enum class Phase : std::uint8_t { kForward, kBackward };

// The part of a transformer block whose forward calls an op, as its ModuleScope declares
// (module_scope.h). Not in the graph's text.
enum class ModuleKind : std::uint8_t { kNone, kAttention, kMlp };

// A call of an op, with all arguments of its schema.
struct Node {
  c10::OperatorHandle op;
  std::vector<Argument> arguments;
  // The results, with lists of tensors flattened. kNoValue for a result that is undefined or not a
  // tensor.
  std::vector<ValueId> outputs;
  Phase phase = Phase::kForward;
  ModuleKind module = ModuleKind::kNone;
};

enum class BoundKind : std::uint8_t {
  kParameter,
  kConstant,  // never changes
  // A tensor of the module that may change between runs, such as running statistics and frozen
  // weights. Each run reads its current value.
  kBuffer,
  kGradient,  // the gradient accumulator of parameter `index`: nodes may mutate it, but not read it
  // Only with sharded parameters (ParameterSharding): the own shard of the weights, the
  // accumulators of all gradients in the order of the sequence, and the own shard of their sum,
  // which nodes may only mutate.
  kWeightShard,
  kUnreducedGradients,
  kGradientShard,
};

// Returns whether the graph itself has the tensor of such a value.
constexpr bool HasTensor(BoundKind kind) {
  return kind == BoundKind::kConstant || kind == BoundKind::kBuffer;
}

// A value that exists before a run and that all runs share.
struct Bound {
  ValueId value = kNoValue;
  BoundKind kind = BoundKind::kConstant;
  int index = -1;     // index of the parameter, or 0 for shards
  std::string name;   // name of the parameter
  at::Tensor tensor;  // undefined if it comes from the GraphBinding
};

struct Graph {
  std::string name;
  // By ValueId; includes values of other pieces. A deque, so that AddValue leaves references valid.
  std::deque<TensorValue> values;
  std::vector<Bound> bound;
  std::vector<Node> nodes;  // in a valid execution order
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;  // may be views, inputs or bound values, or kNoValue

  const TensorValue& value(ValueId id) const { return values[id]; }
  // Returns the root of a view, else `id`.
  ValueId Root(ValueId id) const {
    const ValueId of = value(id).view_of;
    return of == kNoValue ? id : of;
  }
  // References to other values stay valid.
  ValueId AddValue(TensorValue value);
};

// Calls visit(ValueId) for every tensor that the node reads, in order, skipping absent ones.
template <class Visit>
void ForEachInput(const Node& node, Visit&& visit) {
  for (const Argument& argument : node.arguments) {
    if (const auto* id = std::get_if<ValueId>(&argument)) {
      visit(*id);
    } else if (const auto* list = std::get_if<std::vector<ValueId>>(&argument)) {
      for (const ValueId each : *list) {
        if (each != kNoValue) visit(each);
      }
    }
  }
}

// Calls visit(ValueId&), which may replace the value.
template <class Visit>
void ForEachInput(Node& node, Visit&& visit) {
  for (Argument& argument : node.arguments) {
    if (auto* id = std::get_if<ValueId>(&argument)) {
      visit(*id);
    } else if (auto* list = std::get_if<std::vector<ValueId>>(&argument)) {
      for (ValueId& each : *list) {
        if (each != kNoValue) visit(each);
      }
    }
  }
}

// Returns whether the node draws random numbers from the generator of a run's GraphBinding. Such
// nodes are never merged, folded or recomputed.
bool IsRandom(const Node& node);
// Returns the index of the argument that the op mutates, or -1.
int MutatedArgument(const c10::FunctionSchema& schema);

}  // namespace penstock
