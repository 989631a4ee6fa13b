// RunReference: runs node by node, keeps every value and checks every type.
#include <c10/core/InferenceMode.h>

#include "base/index.h"
#include "base/result.h"
#include "graph/ir/print.h"
#include "graph/ops/random_ops.h"
#include "graph/run/interpret.h"
#include "graph/run/view.h"

namespace penstock {
namespace {

class Reference {
 public:
  Reference(const Graph& graph, const GraphBinding& binding)
      : graph_(graph),
        binding_(binding),
        generator_(binding.generator),
        seed_(generator_.defined() ? generator_.current_seed() : 0),
        memory_(graph.values.size()) {
    for (const Bound& bound : graph.bound) {
      Set(bound.value, BoundTensor(bound, binding));
    }
  }

  void SetInputs(std::span<const at::Tensor> inputs) {
    PENSTOCK_CHECK(inputs.size() == graph_.inputs.size(), "graph {} takes {} inputs, not {}",
                   graph_.name, graph_.inputs.size(), inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) Set(graph_.inputs[i], inputs[i]);
  }

  void Set(ValueId id, const at::Tensor& tensor) {
    PENSTOCK_CHECK(Fits(tensor, graph_.value(id).type),
                   "%{} of graph {} is {}, but was captured as {}", id, graph_.name,
                   PrintType(TypeOf(tensor)), PrintType(graph_.value(id).type));
    memory_[id] = tensor;
  }

  at::Tensor Get(ValueId id) const {
    if (id == kNoValue) return {};
    const at::Tensor& root = memory_[graph_.Root(id)];
    return graph_.Root(id) == id ? root : MakeView(root, graph_.value(id));
  }

  void Run(const Node& node) {
    torch::jit::Stack stack;
    for (std::size_t i = 0; i < node.arguments.size(); ++i) {
      stack.push_back(GetArgument(node.arguments[i], *node.op.schema().arguments()[i].type()));
    }
    node.op.callBoxed(stack);
    std::size_t next = 0;
    const auto keep = [&](const at::Tensor& tensor) {
      const ValueId id = node.outputs.at(next++);
      if (id != kNoValue) Set(id, tensor);
    };
    for (const c10::IValue& result : stack) {
      if (result.isTensorList()) {
        for (const at::Tensor& each : result.toTensorVector()) keep(each);
      } else {
        keep(result.isTensor() ? result.toTensor() : at::Tensor());
      }
    }
  }

 private:
  c10::IValue GetArgument(const Argument& argument, const c10::Type& type) {
    if (const auto* id = std::get_if<ValueId>(&argument)) return Get(*id);
    if (const auto* constant = std::get_if<c10::IValue>(&argument)) {
      const auto random_op = RandomOpOf(*constant, type, binding_);
      if (random_op) SeedRandomOp(generator_, seed_, *random_op);
      return RunConstant(*constant, type, binding_);
    }
    const auto& ids = std::get<std::vector<ValueId>>(argument);
    if (type.isSubtypeOf(*c10::ListType::ofTensors())) {
      c10::List<at::Tensor> list;
      for (const ValueId id : ids) list.push_back(Get(id));
      return list;
    }
    c10::List<std::optional<at::Tensor>> list;
    for (const ValueId id : ids) {
      list.push_back(id == kNoValue ? std::nullopt : std::make_optional(Get(id)));
    }
    return list;
  }

  const Graph& graph_;
  const GraphBinding& binding_;
  at::Generator generator_;
  std::uint64_t seed_;              // of the run
  std::vector<at::Tensor> memory_;  // by value; roots only
};

}  // namespace

const at::Tensor& BoundTensor(const Bound& bound, const GraphBinding& binding) {
  switch (bound.kind) {
    case BoundKind::kParameter:
      return binding.parameters.at(Index(bound.index));
    case BoundKind::kGradient:
      return binding.gradients.at(Index(bound.index));
    case BoundKind::kWeightShard:
      return binding.weight_shard;
    case BoundKind::kUnreducedGradients:
      return binding.unreduced_gradients;
    case BoundKind::kGradientShard:
      return binding.gradient_shard;
    case BoundKind::kConstant:
    case BoundKind::kBuffer:
      break;
  }
  return bound.tensor;
}

namespace {

bool IsGenerator(const c10::Type& type) {
  const auto* optional = type.castRaw<c10::OptionalType>();
  return optional != nullptr && optional->getElementType()->kind() == c10::TypeKind::GeneratorType;
}

}  // namespace

std::optional<std::int64_t> RandomOpOf(const c10::IValue& constant, const c10::Type& type,
                                       const GraphBinding& binding) {
  if (!binding.generator.defined() || !constant.isInt() || !IsGenerator(type)) return std::nullopt;
  return binding.first_random_op + constant.toInt();
}

c10::IValue RunConstant(const c10::IValue& constant, const c10::Type& type,
                        const GraphBinding& binding) {
  if ((!constant.isNone() && !constant.isInt()) || !IsGenerator(type)) return constant;
  return binding.generator.defined() ? c10::IValue(binding.generator) : c10::IValue();
}

std::vector<at::Tensor> RunReference(const Graph& graph, const GraphBinding& binding,
                                     std::span<const at::Tensor> inputs) {
  // The graph has the casts that autocast made when it was captured.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const c10::InferenceMode inference;
  Reference reference(graph, binding);
  reference.SetInputs(inputs);
  for (const Node& node : graph.nodes) reference.Run(node);
  std::vector<at::Tensor> outputs;
  for (const ValueId output : graph.outputs) outputs.push_back(reference.Get(output));
  return outputs;
}

}  // namespace penstock
