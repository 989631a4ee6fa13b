// Grouped matmuls of experts are captured with their routing, split into I and W, and counted.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "graph/ir/flops.h"
#include "tests/engine/graph/small_stage.h"
#include "tests/results.h"

namespace penstock::testing {
namespace {

constexpr std::int64_t kRoutedTokens = 24, kExperts = 3, kRoutedDim = 16, kInner = 32;

// One feed-forward layer per expert. A token is routed to the expert with the highest score.
StageSpec Experts(c10::ScalarType dtype) {
  const auto parameter = [&](std::vector<std::int64_t> sizes) {
    return (at::randn(sizes) * 0.2).to(dtype).requires_grad_(true);
  };
  const at::Tensor router = parameter({kRoutedDim, kExperts});
  const at::Tensor up = parameter({kExperts, kRoutedDim, kInner});
  const at::Tensor down = parameter({kExperts, kInner, kRoutedDim});
  StageSpec spec = {.parameters = {{"router", router}, {"up", up}, {"down", down}},
                    .inputs = {at::randn({kRoutedTokens, kRoutedDim}).to(dtype)},
                    .input_gradients = {0}};
  spec.forward = [=](std::span<const at::Tensor> inputs) {
    const at::Tensor& x = inputs[0];
    const at::Tensor scores = x.mm(router).softmax(-1);
    const at::Tensor expert = scores.argmax(-1);
    const at::Tensor order = expert.argsort(true, 0, false);  // tokens, by expert
    const at::Tensor of = at::arange(kExperts).unsqueeze(1);
    const at::Tensor ends = expert.unsqueeze(0).eq(of).sum(1).cumsum(0).to(at::kInt);
    const at::Tensor inner = at::_grouped_mm(x.index_select(0, order), up, ends);
    const at::Tensor outer = at::_grouped_mm(at::silu(inner), down, ends);
    const at::Tensor weight = scores.gather(1, expert.unsqueeze(1));
    return std::vector{x + outer.index_select(0, order.argsort(true, 0, false)) * weight};
  };
  return spec;
}

int CountGrouped(const Graph& graph) {
  int count = 0;
  for (const Node& node : graph.nodes) {
    count += static_cast<int>(node.op.operator_name().name == "aten::_grouped_mm");
  }
  return count;
}

class GroupedMatmul : public ::testing::TestWithParam<c10::ScalarType> {};

TEST_P(GroupedMatmul, SplitsIntoTheGradientsOfInputAndWeight) {
  const StageSpec spec = Experts(GetParam());
  const auto graphs = ValueOf(Build(spec));
  EXPECT_EQ(CountGrouped(graphs.forward), 2);
  EXPECT_EQ(CountGrouped(graphs.backward_input), 2);
  EXPECT_EQ(CountGrouped(graphs.backward_weight), 2);
}

TEST_P(GroupedMatmul, MatchesAutogradBitwise) {
  const StageSpec spec = Experts(GetParam());
  const auto graphs = ValueOf(Build(spec));
  for (const int seed : {1, 2}) {  // with different routing
    const Data data = RandomData(spec, seed);
    const Answer expected = RunAutograd(spec, data);
    for (const bool split : {false, true}) {
      for (const bool reference : {false, true}) {
        ExpectSame(expected, RunGraphs(spec, graphs, data, {split, reference}));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, GroupedMatmul, ::testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& info) { return c10::toString(info.param); });

TEST(GroupedMatmul, CountsItsFlops) {
  const StageGraphs graphs = Build(Experts(at::kFloat)).value();
  std::int64_t flops = 0;
  for (const Graph* graph : {&graphs.forward, &graphs.backward_input, &graphs.backward_weight}) {
    for (const Node& node : graph->nodes) {
      if (node.op.operator_name().name == "aten::_grouped_mm")
        flops += FlopsOf(*graph, node).value();
    }
  }
  EXPECT_EQ(flops, 3 * 2 * 2 * kRoutedTokens * kRoutedDim * kInner);
}

}  // namespace
}  // namespace penstock::testing
