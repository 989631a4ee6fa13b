// The graph of a stage as plain data: tensors as numbered values, ATen calls as nodes.
//
// Single assignment: a value is an input, bound before any run (a parameter, say), the result of
// one node, or a view of one of those. Views are no nodes: they say where in their root's memory
// they lie, so passes never meet them and a run makes them for next to nothing. All the pieces that
// a joint graph is cut into share its value numbers. Sizes are in elements, memory in bytes.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
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

  friend bool operator==(const TensorType&, const TensorType&) = default;
};
TensorType TypeOf(const at::Tensor& tensor);
// Elements times their size; what a dense tensor of this type takes.
std::int64_t BytesOf(const TensorType& type);
bool IsContiguous(const TensorType& type);
TensorType ContiguousType(c10::ScalarType dtype, std::vector<std::int64_t> sizes);
// Elements from a strided tensor's first to past its last.
std::int64_t ExtentOf(const TensorType& type);

struct TensorValue {
  TensorType type;
  // A view: of which value (never a view itself), and how many elements of its own dtype after
  // that value's first element it starts. kNoValue where it is no view.
  ValueId view_of = kNoValue;
  std::int64_t view_offset = 0;
};

// One argument: a tensor value, a list of them (kNoValue is an absent one), or a constant.
using Argument = std::variant<ValueId, std::vector<ValueId>, c10::IValue>;

enum class Phase : std::uint8_t { kForward, kBackward };

// A call of an ATen op with exactly its schema's arguments.
struct Node {
  c10::OperatorHandle op;
  std::vector<Argument> arguments;
  // One for each tensor that the op returns, lists flattened; kNoValue for what is undefined or no
  // tensor.
  std::vector<ValueId> outputs;
  Phase phase = Phase::kForward;
};

enum class BoundKind : std::uint8_t {
  kParameter,  // read
  kConstant,   // read; never changes
  kGradient,   // the gathered gradient of parameter `index`: the only value that nodes may change
};

// A value that is there before a run and is the same in every run.
struct Bound {
  ValueId value = kNoValue;
  BoundKind kind = BoundKind::kConstant;
  int index = -1;     // of the parameter
  std::string name;   // the parameter's
  at::Tensor tensor;  // the memory itself; undefined where it comes later
};

struct Graph {
  std::string name;
  std::vector<TensorValue> values;  // by ValueId; may hold more than this piece uses
  std::vector<Bound> bound;
  std::vector<Node> nodes;  // in an order that can run
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;  // may be views, inputs or bound values, or kNoValue

  const TensorValue& value(ValueId id) const { return values[id]; }
  // The value whose memory `id` lies in: itself unless it is a view.
  ValueId Root(ValueId id) const {
    const ValueId of = value(id).view_of;
    return of == kNoValue ? id : of;
  }
  ValueId AddValue(TensorValue value);
};

// Calls visit(ValueId) for every tensor that the node reads, in order, absent ones left out.
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

// The same with a writable reference, to replace values.
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

// Whether the node draws random numbers: by the generator of a run's GraphBinding, never equal to
// another node, never folded, never run again to save memory.
bool IsRandom(const Node& node);
// Position of the argument that the op changes in place, -1 if it changes none.
int MutatedArgument(const c10::FunctionSchema& schema);

}  // namespace penstock
