// Layers of experts compute what a loop over the experts computes, in the same graphs for every
// routing.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>

#include "graph/ir/flops.h"
#include "graph/ir/parse.h"
#include "graph/ir/print.h"
#include "graph/ops/collective.h"
#include "graph/ops/grouped_linear.h"
#include "graph/ops/routing.h"
#include "tests/engine/graph/small_stage.h"
#include "tests/results.h"

namespace penstock::testing {
namespace {

constexpr std::int64_t kLayerTokens = 12, kLayerChoices = 2, kLayerExperts = 4, kLayerDim = 8,
                       kLayerWidth = 6;

struct Layer {
  at::Tensor up, down, scores;
};

Layer MakeLayer() {
  const auto parameter = [](std::vector<std::int64_t> sizes) {
    return (at::randn(sizes) * 0.3).requires_grad_(true);
  };
  return {parameter({kLayerExperts, kLayerWidth, kLayerDim}),
          parameter({kLayerExperts, kLayerDim, kLayerWidth}),
          parameter({kLayerTokens, kLayerChoices})};
}

at::Tensor Grouped(const Layer& layer, const at::Tensor& x, const at::Tensor& chosen) {
  const Routing routing = SortByExpert(chosen, kLayerExperts);
  const at::Tensor inner =
      at::silu(GroupedLinear(GatherRows(x, routing), layer.up, routing.counts));
  return CombineRows(GroupedLinear(inner, layer.down, routing.counts), layer.scores, routing);
}

at::Tensor OneByOne(const Layer& layer, const at::Tensor& x, const at::Tensor& chosen) {
  at::Tensor sum = at::zeros_like(x);
  for (std::int64_t expert = 0; expert < kLayerExperts; ++expert) {
    const at::Tensor output =
        at::linear(at::silu(at::linear(x, layer.up[expert])), layer.down[expert]);
    const at::Tensor weight = (layer.scores * chosen.eq(expert)).sum(1, /*keepdim=*/true);
    sum = sum + output * weight;
  }
  return sum;
}

// Different routings; in the last ones, experts are empty.
std::vector<at::Tensor> Routings() {
  const at::Tensor all =
      at::arange(kLayerTokens * kLayerChoices).view({kLayerTokens, kLayerChoices});
  std::vector<at::Tensor> routings = {all.remainder(kLayerExperts),
                                      at::full_like(all, kLayerExperts - 1), all.remainder(2) * 2};
  for (int i = 0; i < 3; ++i) {  // distinct experts per token
    routings.push_back(at::rand({kLayerTokens, kLayerExperts})
                           .argsort(std::int64_t{-1}, false)
                           .narrow(-1, 0, kLayerChoices)
                           .clone());
  }
  return routings;
}

TEST(Experts, ComputeWhatALoopOverThemComputes) {
  const Layer layer = MakeLayer();
  for (const at::Tensor& chosen : Routings()) {
    const at::Tensor x = at::randn({kLayerTokens, kLayerDim}).requires_grad_(true);
    const at::Tensor gradient = at::randn({kLayerTokens, kLayerDim});
    const std::vector<at::Tensor> parameters = {x, layer.up, layer.down, layer.scores};
    const at::Tensor expected = OneByOne(layer, x, chosen), actual = Grouped(layer, x, chosen);
    EXPECT_TRUE(at::allclose(expected, actual, 1e-5, 1e-6));
    const auto expected_gradients = torch::autograd::grad({expected}, parameters, {gradient});
    const auto actual_gradients = torch::autograd::grad({actual}, parameters, {gradient});
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_TRUE(at::allclose(expected_gradients[i], actual_gradients[i], 1e-4, 1e-5)) << i;
    }
  }
}

TEST(Experts, MustExist) {
  EXPECT_ANY_THROW(SortByExpert(at::full({1, 1}, kLayerExperts, at::kLong), kLayerExperts));
}

StageSpec SpecOfLayer(const Layer& layer) {
  StageSpec spec = {
      .parameters = {{"up", layer.up}, {"down", layer.down}, {"scores", layer.scores}},
      .inputs = {at::randn({kLayerTokens, kLayerDim}), Routings()[0]},
      .input_gradients = {0}};
  spec.forward = [layer](std::span<const at::Tensor> inputs) {
    const at::Tensor chosen = inputs[1].remainder(kLayerExperts);  // RandomData has larger numbers
    return std::vector{inputs[0] + Grouped(layer, inputs[0], chosen)};
  };
  return spec;
}

// The graphs are captured once, with a routing that none of the microbatches has.
TEST(Experts, OneGraphServesEveryRouting) {
  const StageSpec spec = SpecOfLayer(MakeLayer());
  for (const bool exact : {true, false}) {
    const auto graphs = ValueOf(Build(spec, {.exact = exact}));
    int seed = 0;
    for (const at::Tensor& chosen : Routings()) {
      Data data = RandomData(spec, ++seed);
      data.inputs[1] = chosen;
      const Answer expected = RunAutograd(spec, data);
      for (const bool split : {false, true}) {
        const Answer actual = RunGraphs(spec, graphs, data, {split, /*reference=*/false});
        exact ? ExpectSame(expected, actual) : ExpectNear(expected, actual, 1e-5);
      }
    }
  }
}

TEST(Experts, SplitIntoTheGradientsOfInputAndWeight) {
  const StageGraphs graphs = Build(SpecOfLayer(MakeLayer())).value();
  const auto count = [](const Graph& graph, std::string_view name) {
    return std::ranges::count_if(
        graph.nodes, [&](const Node& node) { return node.op.operator_name().name == name; });
  };
  EXPECT_EQ(count(graphs.forward, "penstock::grouped_linear"), 2);
  EXPECT_EQ(count(graphs.backward_input, "penstock::grouped_linear_input"), 2);
  EXPECT_EQ(count(graphs.backward_input, "penstock::grouped_linear_weight"), 0);
  EXPECT_EQ(count(graphs.backward_weight, "penstock::grouped_linear_weight"), 2);
  const std::int64_t matmul = 2 * kLayerTokens * kLayerChoices * kLayerDim * kLayerWidth;
  EXPECT_EQ(FlopsOf(graphs.forward).value(), 2 * matmul);
  EXPECT_EQ(FlopsOf(graphs.backward_input).value(), 2 * matmul);
  EXPECT_EQ(FlopsOf(graphs.backward_weight).value(), 2 * matmul);
}

// Sends each row to the rank of its expert, and `change`s the rows there.
StageSpec SpecOfSentRows(const std::function<at::Tensor(const at::Tensor& rows)>& change) {
  StageSpec spec = {
      .inputs = {at::randn({kLayerTokens, kLayerDim}), at::full({2}, kLayerTokens / 2, at::kLong)},
      .input_gradients = {0}};
  spec.forward = [change](std::span<const at::Tensor> inputs) {
    const at::Tensor rows = change(SendRows(inputs[0], inputs[1], inputs[1], /*group=*/0));
    return std::vector{ReturnRows(rows, inputs[1], inputs[1], kLayerTokens, /*group=*/0)};
  };
  return spec;
}

TEST(Experts, SentRowsVary) {
  const auto joint = ValueOf(
      CaptureStage(SpecOfSentRows([](const at::Tensor& rows) { return at::silu(rows) * 2; })));
  int varying = 0;
  for (const Node& node : joint.graph.nodes) {
    const TensorType& type = joint.graph.value(node.outputs[0]).type;
    varying += static_cast<int>(type.rows_vary);
    EXPECT_EQ(PrintType(type).ends_with("~"), type.rows_vary);
  }
  EXPECT_EQ(varying, 6);  // sent, silu and its double; and their gradients
  EXPECT_FALSE(joint.graph.value(joint.graph.outputs[0]).type.rows_vary);
  const auto parsed = ValueOf(ParseGraph(PrintGraph(joint.graph), {}));
  EXPECT_EQ(PrintGraph(parsed), PrintGraph(joint.graph));
}

TEST(Experts, GraphsCannotDependOnTheNumberOfSentRows) {
  const auto expect_refused = [](const std::function<at::Tensor(const at::Tensor&)>& change) {
    EXPECT_TRUE(Refused(CaptureStage(SpecOfSentRows(change)), "depends on the routing"));
  };
  expect_refused([](const at::Tensor& rows) { return rows - rows.mean(0); });
  expect_refused([](const at::Tensor& rows) { return rows.narrow(0, 0, 4).clone(); });
  expect_refused([](const at::Tensor& rows) { return rows * at::ones({kLayerTokens, 1}); });
}

}  // namespace
}  // namespace penstock::testing
