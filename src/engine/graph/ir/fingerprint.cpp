#include "graph/ir/fingerprint.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <unordered_map>

#include "base/mix_bits.h"
#include "graph/ir/print.h"

namespace penstock {
namespace {

std::uint64_t HashOfText(std::string_view text) { return std::hash<std::string_view>()(text); }

std::uint64_t HashOfType(const TensorType& type) {
  std::uint64_t hash = static_cast<std::uint64_t>(type.dtype) * 2 + (type.rows_vary ? 1 : 0);
  for (const auto* of : {&type.sizes, &type.strides}) {
    hash = SeedOf(hash, of->size());
    for (const std::int64_t each : *of) hash = SeedOf(hash, static_cast<std::uint64_t>(each));
  }
  return hash;
}

std::uint64_t ContentOf(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.detach().cpu().contiguous();
  if (whole.numel() == 0) return 0;
  return HashOfText({static_cast<const char*>(whole.const_data_ptr()), whole.nbytes()});
}

class Maker {
 public:
  explicit Maker(const Graph& graph) : graph_(graph) {
    for (const Bound& bound : graph.bound) bound_[bound.value] = &bound;
    for (const ValueId input : graph.inputs) Define(graph.Root(input), HashOfText("input"));
  }

  Fingerprint Make() {
    std::uint64_t hash = 0;
    for (const Node& node : graph_.nodes) {
      hash = SeedOf(hash, HashOfText(c10::toString(node.op.operator_name())));
      for (const Argument& argument : node.arguments) hash = SeedOf(hash, HashOf(argument));
      for (const ValueId output : node.outputs) {
        if (output != kNoValue) hash = SeedOf(hash, Define(output, 0));
      }
      result_.nodes.push_back(hash);
      result_.ops.push_back(node.op);
    }
    for (const ValueId output : graph_.outputs) hash = SeedOf(hash, HashOf(output));
    result_.nodes.push_back(hash);
    return std::move(result_);
  }

 private:
  // Gives a value that is not a view the next number.
  std::uint64_t Define(ValueId id, std::uint64_t kind) {
    const std::uint64_t hash =
        SeedOf(SeedOf(kind, numbers_.size()), HashOfType(graph_.value(id).type));
    return numbers_.emplace(id, hash).first->second;
  }

  // A constant and a tensor that runs read differ in whether their content counts, not in their
  // kind.
  std::uint64_t DefineBound(ValueId id) {
    const auto found = bound_.find(id);
    if (found == bound_.end()) return Define(id, HashOfText("unknown"));
    const Bound& bound = *found->second;
    const bool is_named = !bound.name.empty();
    if (!is_named && HasTensor(bound.kind)) {
      std::optional<std::uint64_t> content;
      if (bound.kind == BoundKind::kConstant) content = ContentOf(bound.tensor);
      result_.constants.emplace_back(content, result_.nodes.size());
    }
    return Define(id, HashOfText(is_named ? bound.name : "outside"));
  }

  std::uint64_t HashOf(ValueId id) {
    if (id == kNoValue) return 0;
    const TensorValue& value = graph_.value(id);
    const ValueId root = graph_.Root(id);
    const auto found = numbers_.find(root);
    const std::uint64_t hash = found == numbers_.end() ? DefineBound(root) : found->second;
    if (root == id) return hash;
    return SeedOf(SeedOf(hash, static_cast<std::uint64_t>(value.view_offset)),
                  HashOfType(value.type));
  }

  std::uint64_t HashOf(const Argument& argument) {
    if (const auto* id = std::get_if<ValueId>(&argument)) return HashOf(*id);
    if (const auto* list = std::get_if<std::vector<ValueId>>(&argument)) {
      std::uint64_t hash = list->size();
      for (const ValueId each : *list) hash = SeedOf(hash, HashOf(each));
      return hash;
    }
    return HashOfText(std::string_view(PrintConstant(std::get<c10::IValue>(argument))));
  }

  const Graph& graph_;
  std::unordered_map<ValueId, const Bound*> bound_;
  std::unordered_map<ValueId, std::uint64_t> numbers_;  // by root
  Fingerprint result_;
};

}  // namespace

Fingerprint FingerprintOf(const Graph& graph) { return Maker(graph).Make(); }

std::optional<CaptureDifference> FirstDifference(const Fingerprint& one, const Fingerprint& other) {
  const auto [mine, theirs] = std::ranges::mismatch(one.nodes, other.nodes);
  std::optional<CaptureDifference> first;
  if (mine != one.nodes.end() || theirs != other.nodes.end()) {
    first.emplace().node = static_cast<std::size_t>(theirs - other.nodes.begin());
  }
  const std::size_t constants = std::min(one.constants.size(), other.constants.size());
  for (std::size_t i = 0; i < constants; ++i) {
    const auto& [content, node] = one.constants[i];
    const auto& [other_content, other_node] = other.constants[i];
    if (!content || !other_content || *content == *other_content) continue;
    if (!first || other_node < first->node) first = CaptureDifference{other_node, "", true};
    break;
  }
  if (first && first->node < other.ops.size()) {
    first->op = c10::toString(other.ops[first->node].operator_name());
  }
  return first;
}

}  // namespace penstock
