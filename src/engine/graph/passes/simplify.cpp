// Replaces calls by fewer or cheaper ones with bitwise equal results.
//
//   add.Scalar(x, 1e-5)          -> add.Tensor(x, bound 1e-5), as add.Scalar computes it
//   pow(x, 1)                    -> x
//   mean(x, dim)                 -> div(sum(x, dim), count), as mean computes it
//   add(pad(a), pad(b))          -> cat(a, b)
//   add(add(x, pad(a)), pad(b))  -> add(x, cat(a, b))
//   cat(neg(a), b)               -> mul(cat(a, b), bound [-1, ..., 1, ...])
//
// A pad is slice_backward, as in the backward of a split; a and b fill the result. (The sign of a
// zero may differ.) A negated half occurs in rotary positions; a and b are views of one value, so
// that fuse joins the product with its readers.
// Order: before merge_common, which then merges more calls.
#include <ATen/ScalarOps.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <map>
#include <optional>

#include "graph/ir/graph_tools.h"
#include "graph/ir/print.h"
#include "graph/passes/passes.h"

namespace penstock {
namespace {

using c10::IValue;

bool IsOne(const IValue& value) {
  return (value.isInt() && value.toInt() == 1) || (value.isDouble() && value.toDouble() == 1.0);
}

class Simplifier {
 public:
  Simplifier(Graph& graph, c10::Device device)
      : graph_(graph), device_(device), reads_(CountReaders(graph)) {
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      for (const ValueId output : graph.nodes[i].outputs) {
        if (output != kNoValue) producer_[output] = i;
      }
    }
  }

  void Run() {
    std::vector<Node> nodes = graph_.nodes;
    for (Node& node : nodes) {
      RedirectInputs(node);
      if (ByTensor(node) || MeanBySum(node) || JoinedPads(node) || SignedCat(node) ||
          PowerOfOne(node)) {
        continue;
      }
      kept_.push_back(std::move(node));
    }
    graph_.nodes = std::move(kept_);
    for (ValueId& output : graph_.outputs) {
      if (output != kNoValue) output = Now(output);
    }
  }

 private:
  // Binds the tensor that scalar overloads create from the number, once per number.
  ValueId BindNumber(const at::Scalar& number) {
    const std::string key = PrintConstant(IValue(number));
    const auto found = numbers_.find(key);
    if (found != numbers_.end()) return found->second;
    const at::Tensor tensor = at::native::wrapped_scalar_tensor(number);
    const ValueId id = graph_.AddValue({TypeOf(tensor), kNoValue, 0});
    graph_.bound.push_back({id, BoundKind::kConstant, -1, key, tensor});
    numbers_.emplace(key, id);
    return id;
  }

  bool ByTensor(const Node& node) {
    for (const char* name : {"aten::add", "aten::sub", "aten::mul", "aten::div"}) {
      if (!IsOp(node, name, "Scalar")) continue;
      Node same = node;
      same.op = FindOp(name, "Tensor");
      same.arguments[1] = BindNumber(Constant(node, 1).toScalar());
      kept_.push_back(std::move(same));
      return true;
    }
    return false;
  }

  // The CPU kernel computes mean in this way, except for 16-bit floats.
  bool MeanBySum(const Node& node) {
    if (!IsOp(node, "aten::mean", "dim") || !Constant(node, 3).isNone()) return false;
    const TensorType& input = graph_.value(std::get<ValueId>(node.arguments[0])).type;
    if (input.dtype != c10::kFloat && input.dtype != c10::kDouble) return false;
    if (!Constant(node, 1).isIntList() || input.sizes.empty()) return false;
    std::int64_t count = 1;
    for (std::int64_t dim : Constant(node, 1).toIntVector()) {
      if (dim < 0) dim += static_cast<std::int64_t>(input.sizes.size());
      count *= input.sizes[dim];
    }
    if (Constant(node, 1).toIntVector().empty()) return false;
    const ValueId mean = node.outputs[0];
    const ValueId sum = graph_.AddValue(graph_.value(mean));
    kept_.push_back(
        {FindOp("aten::sum", "dim_IntList"), node.arguments, {sum}, node.phase, node.module});
    kept_.push_back(
        {FindOp("aten::div", "Tensor"), {sum, BindNumber(count)}, {mean}, node.phase, node.module});
    return true;
  }

  bool PowerOfOne(const Node& node) {
    if (!IsOp(node, "aten::pow", "Tensor_Scalar") || !IsOne(Constant(node, 1))) return false;
    const ValueId input = std::get<ValueId>(node.arguments[0]);
    if (graph_.value(input).type != graph_.value(node.outputs[0]).type) return false;
    if (IsBound(input)) return false;  // an output must not alias a parameter
    replaced_[node.outputs[0]] = input;
    return true;
  }

  bool IsBound(ValueId id) const {
    return std::ranges::find(graph_.bound, graph_.Root(id), &Bound::value) != graph_.bound.end();
  }

  // Returns the value that replaces `id`, or `id`. A view of a replaced value becomes the same view
  // of its replacement.
  ValueId Now(ValueId id) {
    const auto found = replaced_.find(graph_.Root(id));
    if (found == replaced_.end()) return id;
    if (graph_.Root(id) == id) return found->second;
    const TensorValue& by = graph_.value(found->second);
    TensorValue view = graph_.value(id);
    view.view_of = graph_.Root(found->second);
    view.view_offset += by.view_of == kNoValue ? 0 : by.view_offset;
    return graph_.AddValue(std::move(view));
  }
  void RedirectInputs(Node& node) {
    ForEachInput(node, [&](ValueId& id) { id = Now(id); });
  }

  // Returns the node that produces `id` if `id` is not a view and has a single reader, else null.
  const Node* ProducerForOneReader(ValueId id) const {
    const auto found = producer_.find(id);
    if (found == producer_.end() || reads_[id] != 1) return nullptr;
    return &graph_.nodes[found->second];
  }
  bool IsPlainAdd(const Node& node) const {
    return IsOp(node, "aten::add", "Tensor") && IsOne(Constant(node, 2));
  }
  // Returns whether the node is slice_backward(gradient, input_sizes, dim, start, end, step) with
  // step 1.
  bool IsPad(const Node* node) const {
    return node != nullptr && IsOp(*node, "aten::slice_backward", "") && IsOne(Constant(*node, 5));
  }

  bool JoinedPads(const Node& node) {
    if (!IsPlainAdd(node)) return false;
    const Node* inner = ProducerForOneReader(std::get<ValueId>(node.arguments[0]));
    const Node* second = ProducerForOneReader(std::get<ValueId>(node.arguments[1]));
    if (inner == nullptr || !IsPad(second) || inner->phase != node.phase) return false;
    if (IsPad(inner)) {
      const auto cat = CatOfPads(*inner, *second, node.outputs[0], node.phase);
      if (!cat) return false;
      Keep(*cat);
      return true;
    }
    if (!IsPlainAdd(*inner)) return false;
    const Node* first = ProducerForOneReader(std::get<ValueId>(inner->arguments[1]));
    if (!IsPad(first)) return false;
    const ValueId joined = graph_.AddValue(graph_.value(first->outputs[0]));
    const auto cat = CatOfPads(*first, *second, joined, node.phase);
    if (!cat) return false;
    const Node add = {node.op,
                      {Now(std::get<ValueId>(inner->arguments[0])), joined, IValue(1)},
                      node.outputs,
                      node.phase};
    if (!ProducesStatedTypes(graph_, add)) return false;
    Keep(*cat);
    kept_.push_back(add);
    return true;
  }

  // Returns the call that computes the sum of two pads as `sum`; nullopt if they overlap or leave a
  // gap.
  std::optional<Node> CatOfPads(const Node& first, const Node& second, ValueId sum, Phase phase) {
    const std::int64_t dim = Constant(first, 2).toInt();
    if (Constant(second, 2).toInt() != dim) return std::nullopt;
    if (Constant(first, 1).toIntVector() != Constant(second, 1).toIntVector()) return std::nullopt;
    const Node* low = &first;
    const Node* high = &second;
    if (Constant(*low, 3).toInt() > Constant(*high, 3).toInt()) std::swap(low, high);
    const std::vector<std::int64_t> sizes = Constant(*low, 1).toIntVector();
    const std::int64_t whole = sizes[dim < 0 ? dim + std::ssize(sizes) : dim];
    if (Constant(*low, 3).toInt() != 0 || Constant(*low, 4).toInt() != Constant(*high, 3).toInt() ||
        Constant(*high, 4).toInt() < whole) {
      return std::nullopt;
    }
    Node cat = {FindOp("aten::cat", ""),
                {std::vector<ValueId>{Now(std::get<ValueId>(low->arguments[0])),
                                      Now(std::get<ValueId>(high->arguments[0]))},
                 IValue(dim)},
                {sum},
                phase};
    if (!ProducesStatedTypes(graph_, cat)) return std::nullopt;
    return cat;
  }

  // Keeps a cat, or what replaces it.
  void Keep(const Node& cat) {
    if (!SignedCat(cat)) kept_.push_back(cat);
  }

  bool SignedCat(const Node& node) {
    if (!IsOp(node, "aten::cat", "")) return false;
    auto pieces = std::get<std::vector<ValueId>>(node.arguments[0]);
    const TensorType& type = graph_.value(node.outputs[0]).type;
    if (!c10::isFloatingType(type.dtype)) return false;
    std::vector<bool> negative(pieces.size(), false);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i] == kNoValue || graph_.value(pieces[i]).type.dtype != type.dtype) return false;
      const Node* const producer = ProducerForOneReader(pieces[i]);
      negative[i] = producer != nullptr && IsOp(*producer, "aten::neg", "");
      if (negative[i]) pieces[i] = Now(std::get<ValueId>(producer->arguments[0]));
    }
    if (std::ranges::count(negative, true) == 0 || !AreViewsOfOne(pieces)) return false;
    std::int64_t dim = Constant(node, 1).toInt();
    if (dim < 0) dim += std::ssize(type.sizes);
    const ValueId joined = graph_.AddValue(graph_.value(node.outputs[0]));
    const Node cat = {node.op, {pieces, node.arguments[1]}, {joined}, node.phase, node.module};
    const ValueId signs = BindSigns(negative, type, dim);
    const Node product = {
        FindOp("aten::mul", "Tensor"), {joined, signs}, node.outputs, node.phase, node.module};
    if (!ProducesStatedTypes(graph_, cat) || !ProducesStatedTypes(graph_, product)) return false;
    kept_.push_back(cat);
    kept_.push_back(product);
    return true;
  }

  bool AreViewsOfOne(const std::vector<ValueId>& values) const {
    return std::ranges::all_of(values, [&](ValueId id) {
      return graph_.value(id).view_of != kNoValue &&
             graph_.Root(id) == graph_.Root(values.front()) &&
             graph_.value(id).type == graph_.value(values.front()).type;
    });
  }

  // Binds -1 or 1 for each element along `dim` of a tensor of this type, which consists of equal
  // pieces.
  ValueId BindSigns(const std::vector<bool>& negative, const TensorType& type, std::int64_t dim) {
    std::vector<std::int64_t> sizes(type.sizes.begin() + dim, type.sizes.end());
    std::ranges::fill(sizes.begin() + 1, sizes.end(), 1);
    at::Tensor signs = at::ones(sizes, type.dtype);
    const std::int64_t piece = sizes.front() / std::ssize(negative);
    std::string key = PrintType(TypeOf(signs));
    for (std::size_t i = 0; i < negative.size(); ++i) {
      key += negative[i] ? '-' : '+';
      if (negative[i]) signs.narrow(0, static_cast<std::int64_t>(i) * piece, piece).fill_(-1);
    }
    const auto found = numbers_.find(key);
    if (found != numbers_.end()) return found->second;
    const ValueId id = graph_.AddValue({TypeOf(signs), kNoValue, 0});
    graph_.bound.push_back({id, BoundKind::kConstant, -1, "", signs.to(device_)});
    numbers_.emplace(key, id);
    return id;
  }

  Graph& graph_;
  const c10::Device device_;
  std::vector<Node> kept_;
  std::map<ValueId, std::size_t> producer_;  // by value: index in the original graph
  std::vector<int> reads_;                   // by root, in the original graph
  std::map<ValueId, ValueId> replaced_;
  std::map<std::string, ValueId> numbers_;  // constants, by their text
};

}  // namespace

Status Simplify(StageGraphs& graphs, const CompileOptions&) {
  Simplifier(graphs.joint.graph, graphs.joint.device).Run();
  return {};
}

}  // namespace penstock
