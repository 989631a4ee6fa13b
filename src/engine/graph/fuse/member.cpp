// FuseGroupOf: converts a node to a group of one member.
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/index.h"
#include "graph/fuse/group.h"
#include "graph/ir/graph_tools.h"

namespace penstock {
namespace {

struct FusedOpRule {
  std::string_view name;  // of the node, with its overload
  std::string_view op;    // of the kernel
  int operands;
  bool exact;  // bitwise equal to ATen's kernel
};

constexpr std::array kMemberRules = {
    FusedOpRule{"aten::add.Tensor", "add", 2, true},
    FusedOpRule{"aten::sub.Tensor", "sub", 2, true},
    FusedOpRule{"aten::mul.Tensor", "mul", 2, true},
    FusedOpRule{"aten::div.Tensor", "div", 2, true},
    FusedOpRule{"aten::neg", "neg", 1, true},
    FusedOpRule{"aten::rsqrt", "rsqrt", 1, true},
    FusedOpRule{"aten::sqrt", "sqrt", 1, true},
    FusedOpRule{"aten::pow.Tensor_Scalar", "pow", 1, true},
    FusedOpRule{"aten::_to_copy", "copy", 1, true},
    FusedOpRule{"aten::clone", "copy", 1, true},
    FusedOpRule{"aten::exp", "exp", 1, false},
    FusedOpRule{"aten::sigmoid", "sigmoid", 1, false},
    FusedOpRule{"aten::silu", "silu", 1, false},
    FusedOpRule{"aten::silu_backward", "silu_backward", 2, false},
    FusedOpRule{"aten::sum.dim_IntList", "sum", 1, false},
    FusedOpRule{"aten::mean.dim", "mean", 1, false},
    FusedOpRule{"aten::cat", "cat", 0, true},
    FusedOpRule{"aten::add_.Tensor", "accumulate", 0, false},
};

bool IsReal(c10::ScalarType dtype) { return dtype == c10::kFloat || dtype == c10::kBFloat16; }

class MemberBuilder {
 public:
  MemberBuilder(const Graph& graph, int node, bool exact)
      : graph_(graph), node_(graph.nodes[node]), exact_(exact) {
    group_.members.resize(1);
    member().node = node;
  }

  std::optional<FuseGroup> Build() {
    const std::string name = c10::toString(node_.op.operator_name());
    const auto* const rule = std::find_if(kMemberRules.begin(), kMemberRules.end(),
                                          [&](const FusedOpRule& r) { return r.name == name; });
    if (rule == kMemberRules.end() || (exact_ && !rule->exact)) return std::nullopt;
    member().op = rule->op;
    if (rule->op != "accumulate" && !IsFusible()) return std::nullopt;
    if (!BuildMember(*rule) || !Fits(group_)) return std::nullopt;
    return std::move(group_);
  }

 private:
  bool IsFusible() const { return node_.outputs.size() == 1 && IsReal(Output().type.dtype); }

  bool BuildMember(const FusedOpRule& rule) {
    if (rule.op == "cat") return Cat();
    if (rule.op == "sum" || rule.op == "mean") return Sum();
    if (rule.op == "accumulate") return Accumulate();
    return Pointwise(rule);
  }

  FuseMember& member() { return group_.members.front(); }
  const TensorValue& Output() const { return graph_.value(node_.outputs[0]); }
  ValueId Tensor(std::size_t argument) const {
    return std::get<ValueId>(node_.arguments[argument]);
  }

  // Sets the index space to these sizes without dims of one element. Returns false if it is empty.
  bool SetSpace(const std::vector<std::int64_t>& sizes) {
    logical_ = sizes;
    for (const std::int64_t size : sizes) {
      if (size == 0) return false;
      if (size > 1) group_.sizes.push_back(size);
    }
    return !group_.sizes.empty();
  }

  // `strides` are by logical dim, including dims of one element.
  void AddAccess(ValueId root, std::int64_t offset, const std::vector<std::int64_t>& strides) {
    FuseAccess access{root, {offset, {}}, 0};
    for (std::size_t i = 0; i < logical_.size(); ++i) {
      if (logical_[i] > 1) access.at.strides.push_back(strides[i]);
    }
    member().accesses.push_back(std::move(access));
  }

  // Returns whether the value and the memory it is a view of have the same fusible dtype.
  bool Readable(ValueId id) const {
    const TensorValue& value = graph_.value(id);
    return !value.type.rows_vary && IsReal(value.type.dtype) &&
           value.type.dtype == graph_.value(graph_.Root(id)).type.dtype;
  }

  bool AddOperand(ValueId id) {
    if (AddNumber(id)) return true;
    const TensorValue& value = graph_.value(id);
    if (!Readable(id) || value.type.sizes.size() > logical_.size()) return false;
    // Broadcasting: leading dims are missing, or dims have one element.
    std::vector<std::int64_t> strides(logical_.size(), 0);
    const std::size_t missing = logical_.size() - value.type.sizes.size();
    for (std::size_t i = 0; i < value.type.sizes.size(); ++i) {
      if (value.type.sizes[i] != 1) strides[missing + i] = value.type.strides[i];
    }
    AddAccess(graph_.Root(id), value.view_of == kNoValue ? 0 : value.view_offset, strides);
    return true;
  }

  // Adds the operand as a number if it is a zero-dimensional constant.
  bool AddNumber(ValueId id) {
    const auto bound = std::find_if(graph_.bound.begin(), graph_.bound.end(),
                                    [&](const Bound& each) { return each.value == id; });
    if (bound == graph_.bound.end() || bound->kind != BoundKind::kConstant) return false;
    if (bound->tensor.dim() != 0 || bound->tensor.is_complex()) return false;
    const double number = bound->tensor.item().toDouble();
    if (!std::isfinite(static_cast<float>(number))) return false;
    FuseAccess access{kNoValue, {0, std::vector<std::int64_t>(group_.sizes.size(), 0)}, number};
    member().accesses.push_back(std::move(access));
    return true;
  }

  bool Pointwise(const FusedOpRule& rule) {
    if (!SetSpace(Output().type.sizes) || !SelectOp()) return false;
    AddAccess(node_.outputs[0], 0, Output().type.strides);
    for (int i = 0; i < rule.operands; ++i) {
      if (!AddOperand(Tensor(Index(i)))) return false;
    }
    return true;
  }

  // Checks the constant arguments and selects the kernel op.
  bool SelectOp() {
    std::string& op = member().op;
    if (op == "add" || op == "sub") {
      const at::Scalar alpha = Constant(node_, 2).toScalar();
      return !alpha.isComplex() && alpha.toDouble() == 1.0;
    }
    if (op != "pow") return true;
    const at::Scalar exponent = Constant(node_, 1).toScalar();
    if (exponent.isComplex()) return false;
    op = exponent.toDouble() == 2.0 ? "square" : exponent.toDouble() == 3.0 ? "cube" : "";
    // ATen rounds a cube twice in 16 bits.
    return op == "square" || (op == "cube" && !(exact_ && Output().type.dtype != c10::kFloat));
  }

  bool Sum() {
    const ValueId operand = Tensor(0);
    const TensorType& type = graph_.value(operand).type;
    const TensorType& output = Output().type;
    if (!Readable(operand) || !Constant(node_, 1).isIntList() || !SetSpace(type.sizes))
      return false;
    std::vector<bool> reduced(type.sizes.size(), false);
    for (const std::int64_t dim : Constant(node_, 1).toIntVector()) {
      reduced[dim < 0 ? dim + std::ssize(reduced) : dim] = true;
    }
    const bool keep = Constant(node_, 2).toBool();
    std::vector<std::int64_t> strides;
    std::size_t next = 0;
    for (std::size_t i = 0; i < reduced.size(); ++i) {
      strides.push_back(reduced[i] ? 0 : output.strides[next]);
      next += keep || !reduced[i] ? 1 : 0;
      if (reduced[i]) member().count *= type.sizes[i];
      if (type.sizes[i] > 1) member().reduced.push_back(reduced[i]);
    }
    if (member().count == 1) return false;
    AddAccess(node_.outputs[0], 0, strides);
    return AddOperand(operand) && SumsRows();
  }

  // Returns whether rows are contiguous: summed dims have smaller strides than the other dims.
  bool SumsRows() const {
    const FuseMember& sum = group_.members.front();
    std::int64_t most = 0, least = std::numeric_limits<std::int64_t>::max();
    for (std::size_t i = 0; i < group_.sizes.size(); ++i) {
      const std::int64_t stride = std::abs(sum.accesses[1].at.strides[i]);
      if (sum.reduced[i]) most = std::max(most, stride);
      if (!sum.reduced[i]) least = std::min(least, stride);
    }
    return most < least;
  }

  // add_(accumulator, sum over rows): the kernel adds each row as it computes it.
  bool Accumulate() {
    const ValueId accumulator = Tensor(0);
    const ValueId added = Tensor(1);
    const TensorType& type = graph_.value(accumulator).type;
    const ValueId sum = graph_.Root(added);
    if (graph_.Root(accumulator) != accumulator || type.dtype != c10::kFloat ||
        !IsContiguous(type) || !IsContiguous(graph_.value(added).type) ||
        Constant(node_, 2).toScalar().toDouble() != 1.0) {
      return false;
    }
    int producer = -1, readers = 0;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (std::find(node.outputs.begin(), node.outputs.end(), sum) != node.outputs.end()) {
        producer = static_cast<int>(i);
      }
      ForEachInput(node, [&](ValueId id) { readers += graph_.Root(id) == sum ? 1 : 0; });
    }
    if (producer < 0 || readers != 1 || BytesOf(type) != BytesOf(graph_.value(sum).type))
      return false;
    for (const ValueId output : graph_.outputs) {
      if (output != kNoValue && graph_.Root(output) == sum) return false;
    }
    member().also = producer;
    return AccumulateAccesses(accumulator, graph_.nodes[producer]);
  }

  // Returns false unless `sum` sums over the leading dims of its operand.
  bool AccumulateAccesses(ValueId accumulator, const Node& sum) {
    if (c10::toString(sum.op.operator_name()) != "aten::sum.dim_IntList") return false;
    const ValueId operand = std::get<ValueId>(sum.arguments[0]);
    const TensorType& type = graph_.value(operand).type;
    if (!Readable(operand) || graph_.value(sum.outputs[0]).type.dtype != c10::kFloat ||
        !Constant(sum, 1).isIntList() || !SetSpace(type.sizes)) {
      return false;
    }
    std::vector<std::int64_t> dims = Constant(sum, 1).toIntVector();
    std::sort(dims.begin(), dims.end());
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] != static_cast<std::int64_t>(i)) return false;
    }
    std::vector<std::int64_t> strides(type.sizes.size(), 0);
    std::int64_t stride = 1;
    for (std::size_t i = strides.size(); i-- > dims.size(); stride *= type.sizes[i]) {
      strides[i] = stride;
    }
    member().accumulates = true;
    AddAccess(accumulator, 0, strides);
    return stride > 1 && AddOperand(operand);
  }

  // Accepts two or more pieces of one root that have equal types and even distances. They become
  // one access with a dim for the pieces.
  bool Cat() {
    const auto& pieces = std::get<std::vector<ValueId>>(node_.arguments[0]);
    const TensorType& output = Output().type;
    const auto count = std::ssize(pieces);
    if (count < 2 || pieces[0] == kNoValue) return false;
    const TensorValue& first = graph_.value(pieces[0]);
    const TensorValue& second = graph_.value(pieces[1]);
    const std::int64_t step = second.view_offset - first.view_offset;
    for (std::ptrdiff_t i = 0; i < count; ++i) {
      const ValueId piece = pieces[i];
      if (piece == kNoValue || !Readable(piece)) return false;
      const TensorValue& value = graph_.value(piece);
      if (value.view_of == kNoValue || value.view_of != first.view_of || value.type != first.type ||
          value.view_offset != first.view_offset + i * step) {
        return false;
      }
    }
    std::int64_t dim = Constant(node_, 1).toInt();
    if (dim < 0) dim += std::ssize(output.sizes);
    return CatAccesses(Index(dim), first, count, step);
  }

  bool CatAccesses(std::size_t dim, const TensorValue& first, std::int64_t count,
                   std::int64_t step) {
    member().op = "copy";
    const auto split = [&](std::vector<std::int64_t> values, std::int64_t outer) {
      values.insert(values.begin() + static_cast<std::ptrdiff_t>(dim), outer);
      return values;
    };
    const TensorType& output = Output().type;
    if (output.dtype != first.type.dtype || step == 0) return false;
    if (!SetSpace(split(first.type.sizes, count))) return false;
    AddAccess(node_.outputs[0], 0,
              split(output.strides, output.strides[dim] * first.type.sizes[dim]));
    AddAccess(first.view_of, first.view_offset, split(first.type.strides, step));
    return true;
  }

  const Graph& graph_;
  const Node& node_;
  const bool exact_;
  std::vector<std::int64_t> logical_;
  FuseGroup group_;
};

}  // namespace

std::optional<FuseGroup> FuseGroupOf(const Graph& graph, int node, bool exact) {
  return MemberBuilder(graph, node, exact).Build();
}

}  // namespace penstock
