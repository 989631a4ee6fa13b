#include "graph/ir/verify.h"

#include <algorithm>
#include <optional>

#include "base/index.h"

namespace penstock {
namespace {

enum class State : std::uint8_t { kUndefined, kDefined, kGradient };

bool TakesTensor(const c10::TypePtr& type) {
  return type->isSubtypeOf(*c10::OptionalType::ofTensor());
}

bool TakesTensorList(const c10::TypePtr& type) {
  return type->isSubtypeOf(*c10::ListType::ofTensors()) ||
         type->isSubtypeOf(*c10::ListType::ofOptionalTensors());
}

// Returns the bytes from a tensor's first element to past its last, or nullopt if the type is
// invalid.
std::optional<std::int64_t> CheckedExtent(const TensorType& type) {
  if (type.dtype == c10::ScalarType::Undefined || type.strides.size() != type.sizes.size()) {
    return {};
  }
  const auto item = static_cast<std::int64_t>(c10::elementSize(type.dtype));
  std::int64_t elements = 1, last = 0;
  for (std::size_t i = 0; i < type.sizes.size(); ++i) {
    std::int64_t step = 0;
    if (type.sizes[i] < 0 || type.strides[i] < 0 ||
        __builtin_mul_overflow(std::max<std::int64_t>(type.sizes[i], 1), elements, &elements) ||
        __builtin_mul_overflow(std::max<std::int64_t>(type.sizes[i] - 1, 0), type.strides[i],
                               &step) ||
        __builtin_add_overflow(last, step, &last)) {
      return {};
    }
  }
  constexpr std::int64_t kMaxBytes = std::int64_t{1} << 56;  // more than any machine addresses
  if (elements > kMaxBytes / item || last >= kMaxBytes / item) return {};
  return ExtentOf(type) * item;
}

class Verifier {
 public:
  explicit Verifier(const Graph& graph)
      : graph_(graph), states_(graph.values.size(), State::kUndefined) {}

  Status Verify() {
    for (const Bound& bound : graph_.bound) PENSTOCK_TRY_STATUS(VerifyBound(bound));
    for (const ValueId input : graph_.inputs) {
      PENSTOCK_TRY_STATUS(Define(input, State::kDefined, "input"));
    }
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      where_ = fmt::format("node {} ({})", i, c10::toString(node.op.operator_name()));
      PENSTOCK_TRY_STATUS(VerifyArguments(node));
      PENSTOCK_TRY_STATUS(VerifyOutputs(node));
    }
    where_ = "the graph's outputs";
    for (const ValueId output : graph_.outputs) {
      if (output != kNoValue) PENSTOCK_TRY_STATUS(Read(output, /*mutated=*/false));
    }
    return {};
  }

 private:
  template <class... Args>
  tl::unexpected<Error> Fault(fmt::format_string<Args...> format, Args&&... args) {
    return MakeError(ErrorCode::kInternal, "graph {}: {}: {}", graph_.name, where_,
                     fmt::format(format, std::forward<Args>(args)...));
  }

  bool InRange(ValueId id) const { return id >= 0 && Index(id) < graph_.values.size(); }
  State& state(ValueId id) { return states_[id]; }

  Status VerifyBound(const Bound& bound) {
    where_ = "a bound value";
    if (HasTensor(bound.kind) ? !bound.tensor.defined() : bound.index < 0) {
      return Fault("%{} has neither a tensor nor a parameter index", bound.value);
    }
    const bool is_sum =
        bound.kind == BoundKind::kGradient || bound.kind == BoundKind::kGradientShard;
    return Define(bound.value, is_sum ? State::kGradient : State::kDefined, "bound");
  }

  Status Define(ValueId id, State as, const char* what) {
    if (!InRange(id)) return Fault("{} %{} is not a value of the graph", what, id);
    if (graph_.value(id).view_of != kNoValue) return Fault("{} %{} is a view", what, id);
    if (state(id) != State::kUndefined) return Fault("{} %{} is produced twice", what, id);
    if (!CheckedExtent(graph_.value(id).type))
      return Fault("{} %{} has an invalid shape", what, id);
    state(id) = as;
    return {};
  }

  // Checks that the view lies within the extent of its root.
  Status VerifyView(ValueId id) {
    const TensorValue& view = graph_.value(id);
    const auto root = CheckedExtent(graph_.value(view.view_of).type);
    const auto extent = CheckedExtent(view.type);
    std::int64_t begin = 0;
    if (!extent || view.view_offset < 0 ||
        __builtin_mul_overflow(view.view_offset,
                               static_cast<std::int64_t>(c10::elementSize(view.type.dtype)),
                               &begin) ||
        begin > *root - *extent) {
      return Fault("%{} is a view of %{} and lies outside of its memory", id, view.view_of);
    }
    return {};
  }

  Status Read(ValueId id, bool mutated) {
    if (!InRange(id)) return Fault("%{} is not a value of the graph", id);
    const ValueId root = graph_.Root(id);
    if (!InRange(root))
      return Fault("%{} is a view of %{}, which is not a value of the graph", id, root);
    if (graph_.value(root).view_of != kNoValue) {
      return Fault("%{} is a view of %{}, which is a view itself", id, root);
    }
    if (state(root) == State::kUndefined) return Fault("%{} is read before it is produced", id);
    if (root != id) PENSTOCK_TRY_STATUS(VerifyView(id));
    if (mutated && state(root) != State::kGradient) {
      return Fault("%{} is mutated, but is not a bound gradient", id);
    }
    if (!mutated && state(root) == State::kGradient) {
      return Fault("%{} is a gradient accumulator, which cannot be read", id);
    }
    return {};
  }

  Status VerifyArguments(const Node& node) {
    const auto& expected = node.op.schema().arguments();
    if (node.arguments.size() != expected.size()) {
      return Fault("has {} arguments, but the op takes {}", node.arguments.size(), expected.size());
    }
    const int mutated = MutatedArgument(node.op.schema());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const Argument& argument = node.arguments[i];
      if (const auto* id = std::get_if<ValueId>(&argument)) {
        if (!TakesTensor(expected[i].type())) {
          return Fault("argument '{}' is not a tensor", expected[i].name());
        }
        PENSTOCK_TRY_STATUS(Read(*id, static_cast<int>(i) == mutated));
      } else if (const auto* list = std::get_if<std::vector<ValueId>>(&argument)) {
        if (!TakesTensorList(expected[i].type())) {
          return Fault("argument '{}' is not a list of tensors", expected[i].name());
        }
        for (const ValueId id : *list) {
          if (id != kNoValue) PENSTOCK_TRY_STATUS(Read(id, /*mutated=*/false));
        }
      }
    }
    return {};
  }

  Status VerifyOutputs(const Node& node) {
    const auto& returns = node.op.schema().returns();
    bool lists = false;
    for (const c10::Argument& result : returns) lists = lists || TakesTensorList(result.type());
    if (!lists && node.outputs.size() != returns.size()) {
      return Fault("has {} outputs, but the op returns {}", node.outputs.size(), returns.size());
    }
    for (const ValueId output : node.outputs) {
      if (output != kNoValue) PENSTOCK_TRY_STATUS(Define(output, State::kDefined, "output"));
    }
    return {};
  }

  const Graph& graph_;
  std::vector<State> states_;
  std::string where_;
};

}  // namespace

Status VerifyGraph(const Graph& graph) { return Verifier(graph).Verify(); }

}  // namespace penstock
