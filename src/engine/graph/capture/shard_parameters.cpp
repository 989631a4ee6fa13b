#include "graph/capture/shard_parameters.h"

#include <algorithm>

#include "graph/ir/graph_tools.h"
#include "graph/ops/pack.h"

namespace penstock {
namespace {

c10::IValue Number(std::int64_t number) { return {number}; }

// Sharded parameters become views of an all-gather.
void GatherWeights(JointGraph& joint, const ParameterSharding& sharding) {
  Graph& graph = joint.graph;
  const auto first = std::ranges::find_if(sharding.starts, [](auto start) { return start >= 0; });
  if (first == sharding.starts.end()) return;
  const Bound& of_first = joint.parameters[Index(first - sharding.starts.begin())];
  const c10::ScalarType dtype = graph.value(of_first.value).type.dtype;
  const ValueId shard =
      graph.AddValue({ContiguousType(dtype, {sharding.shard_elements}), kNoValue, 0});
  const ValueId all = graph.AddValue({ContiguousType(dtype, {sharding.elements()}), kNoValue, 0});
  for (std::size_t i = 0; i < joint.parameters.size(); ++i) {
    if (!sharding.sharded(i)) continue;
    const ValueId parameter = joint.parameters[i].value;
    PENSTOCK_CHECK(
        graph.value(parameter).type.dtype == dtype && IsContiguous(graph.value(parameter).type),
        "{} cannot be in a shard", joint.parameters[i].name);
    for (TensorValue& value : graph.values) {
      if (value.view_of != parameter) continue;
      value.view_of = all;
      value.view_offset = MovedOffset(value, dtype, sharding.starts[i]);
    }
    graph.values[Index(parameter)].view_of = all;
    graph.values[Index(parameter)].view_offset = sharding.starts[i];
    std::erase_if(graph.bound, [&](const Bound& bound) { return bound.value == parameter; });
  }
  graph.bound.push_back({shard, BoundKind::kWeightShard, 0, "", at::Tensor()});
  graph.nodes.insert(graph.nodes.begin(),
                     {FindOp("penstock::all_gather", ""),
                      {shard, Number(sharding.replicas), Number(ParameterSharding::kGroup)},
                      {all},
                      Phase::kForward});
}

// The gradient of the own shard takes the place of the sharded parameters' gradients.
void ScatterGradients(JointGraph& joint, const ParameterSharding& sharding) {
  Graph& graph = joint.graph;
  std::vector<ValueId> parts;
  std::vector<std::int64_t> starts;
  for (std::size_t i = 0; i < joint.parameters.size(); ++i) {
    ValueId& gradient = graph.outputs[joint.output_gradients.size() + i];
    if (!sharding.sharded(i) || gradient == kNoValue) continue;
    parts.push_back(std::exchange(gradient, kNoValue));
    starts.push_back(sharding.starts[i]);
  }
  const std::int64_t size = sharding.elements();
  const ValueId packed =
      graph.AddValue({ContiguousType(joint.gradient_dtype, {size}), kNoValue, 0});
  const ValueId own = graph.AddValue(
      {ContiguousType(joint.gradient_dtype, {sharding.shard_elements}), kNoValue, 0});
  graph.nodes.push_back(
      {PackOp(),
       {parts, c10::IValue(starts), Number(size), c10::IValue(joint.gradient_dtype)},
       {packed},
       Phase::kBackward});
  graph.nodes.push_back({FindOp("penstock::reduce_scatter", ""),
                         {packed, Number(sharding.replicas), Number(ParameterSharding::kGroup)},
                         {own},
                         Phase::kBackward});
  graph.outputs.push_back(own);
}

}  // namespace

std::int64_t MovedOffset(const TensorValue& view, c10::ScalarType dtype, std::int64_t elements) {
  const auto bytes = elements * static_cast<std::int64_t>(c10::elementSize(dtype));
  return view.view_offset + bytes / static_cast<std::int64_t>(c10::elementSize(view.type.dtype));
}

void ShardParameters(JointGraph& joint, const ParameterSharding& sharding) {
  PENSTOCK_CHECK(sharding.starts.size() == joint.parameters.size(),
                 "a stage with {} parameters has {} starts of them", joint.parameters.size(),
                 sharding.starts.size());
  joint.sharding = sharding;
  if (sharding.weights) GatherWeights(joint, sharding);
  ScatterGradients(joint, sharding);
}

}  // namespace penstock
