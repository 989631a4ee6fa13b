// Each pass produces fewer or cheaper nodes with the same results.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tests/engine/graph/small_stage.h"

namespace penstock::testing {
namespace {

using In = const at::Tensor&;

StageSpec Spec(const std::function<at::Tensor(In input, In weight)>& forward) {
  StageSpec spec;
  const at::Tensor weight = at::randn({6, 8}).requires_grad_(true);
  spec.parameters = {{"weight", weight}};
  spec.inputs = {at::randn({6, 8})};
  spec.input_gradients = {0};
  spec.forward = [=](std::span<const at::Tensor> inputs) {
    return std::vector{forward(inputs[0], weight)};
  };
  return spec;
}

int Count(const Graph& graph, std::string_view op) {
  int count = 0;
  for (const Node& node : graph.nodes) count += c10::toString(node.op.operator_name()) == op;
  return count;
}

// Returns the graphs of the stage after comparing them with autograd.
StageGraphs Checked(const StageSpec& spec, const std::vector<std::string>& disabled = {}) {
  StageGraphs graphs = Build(spec, {.disabled = disabled}).value();
  const Data data = RandomData(spec, 11);
  ExpectSame(RunAutograd(spec, data), RunGraphs(spec, graphs, data, {true, true}));
  ExpectSame(RunAutograd(spec, data), RunGraphs(spec, graphs, data, {true, false}));
  return graphs;
}

TEST(Simplify, JoinsThePadsOfASplitsBackward) {
  const StageSpec spec = Spec([](In x, In w) {
    const at::Tensor y = x * w;
    return y * 3 + at::cat({y.narrow(1, 4, 4), y.narrow(1, 0, 4)}, 1) * w;
  });
  EXPECT_EQ(Count(Checked(spec, {"simplify"}).joint.graph, "aten::slice_backward"), 2);
  EXPECT_EQ(Count(Checked(spec).joint.graph, "aten::slice_backward"), 0);
}

TEST(Simplify, KeepsPadsThatDoNotFillTheResult) {
  const StageSpec spec = Spec([](In x, In w) {
    const at::Tensor y = x * w;
    return y * 3 +
           at::cat({y.narrow(1, 5, 3), y.narrow(1, 0, 5).narrow(1, 0, 4), x.narrow(1, 0, 1)}, 1);
  });
  EXPECT_GT(Count(Checked(spec).joint.graph, "aten::slice_backward"), 0);
}

// Rotary positions as the models of transformers compute them.
at::Tensor RotateHalf(In y) { return at::cat({-y.narrow(1, 4, 4), y.narrow(1, 0, 4)}, 1); }

TEST(Simplify, RotaryPositionsNegateNothingInForwardAndBackward) {
  const StageSpec spec = Spec([](In x, In w) {
    const at::Tensor y = x * w;
    return y * 3 + RotateHalf(y) * w;
  });
  const Graph before = Checked(spec, {"simplify"}).joint.graph, after = Checked(spec).joint.graph;
  EXPECT_EQ(Count(before, "aten::neg"), 2);
  EXPECT_EQ(Count(after, "aten::neg"), 0);
  EXPECT_EQ(Count(after, "aten::slice_backward"), 0);
  EXPECT_EQ(Count(after, "aten::cat"), 2);
}

TEST(Simplify, JoinsPadsWithoutAnotherTerm) {
  const StageSpec spec = Spec([](In x, In w) { return RotateHalf(x * w) * w; });
  EXPECT_EQ(Count(Checked(spec).joint.graph, "aten::slice_backward"), 0);
}

TEST(Simplify, KeepsNegationsThatOthersRead) {
  const StageSpec spec = Spec([](In x, In w) {
    const at::Tensor y = x * w, negative = -y.narrow(1, 4, 4);
    return at::cat({negative, y.narrow(1, 0, 4)}, 1) * w + negative.repeat({1, 2});
  });
  EXPECT_GE(Count(Checked(spec).joint.graph, "aten::neg"), 1);
}

TEST(Simplify, RemovesPowersOfOneAndWrappedNumbers) {
  const StageSpec spec = Spec([](In x, In w) {
    const at::Tensor y = x * w;
    return y.pow(2).mean(-1, /*keepdim=*/true).add(1e-5).rsqrt() * y / 3;
  });
  EXPECT_GT(Count(Checked(spec, {"simplify"}).joint.graph, "aten::pow.Tensor_Scalar"),
            Count(Checked(spec).joint.graph, "aten::pow.Tensor_Scalar"));
  const StageGraphs graphs = Checked(spec);
  for (const char* op :
       {"aten::add.Scalar", "aten::div.Scalar", "aten::mul.Scalar", "aten::mean.dim"}) {
    EXPECT_EQ(Count(graphs.joint.graph, op), 0) << op;
  }
}

TEST(MergeCommon, ComputesEqualCallsOnce) {
  const StageSpec spec =
      Spec([](In x, In w) { return (x * w).t().mul((x * w).t()) + (x * w).t(); });
  EXPECT_EQ(Count(Checked(spec, {"merge_common"}).forward, "aten::mul.Tensor"), 4);
  EXPECT_EQ(Count(Checked(spec).forward, "aten::mul.Tensor"), 2);
}

TEST(MergeCommon, DoesNotMergePhases) {
  // Backward computes x * w again. Merging would save it.
  const StageSpec spec = Spec([](In x, In w) { return x * w * x * w; });
  const StageGraphs merged = Checked(spec);
  EXPECT_LE(merged.saved.size(), Checked(spec, {"merge_common"}).saved.size());
}

TEST(RemoveDead, RemovesUnreadNodes) {
  const StageSpec spec = Spec([](In x, In w) {
    (void)x.exp();
    return x * w;
  });
  EXPECT_EQ(Count(Checked(spec, {"remove_dead"}).forward, "aten::exp"), 1);
  EXPECT_EQ(Count(Checked(spec).forward, "aten::exp"), 0);
}

// Sums its gradient over a group of processes.
struct SummedGradient : torch::autograd::Function<SummedGradient> {
  static at::Tensor forward(torch::autograd::AutogradContext*, In x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("penstock::c10d_all_reduce", "")
                               .typed<at::Tensor(In, std::string, std::int64_t)>();
    return {op.call(gradients[0], "sum", kGroup)};
  }
  static constexpr std::int64_t kGroup = 1 << 20;
};

TEST(SumOnce, LeavesSumsOfGradientsToTheEndOfTheStep) {
  const StageSpec spec =
      Spec([](In x, In w) { return SummedGradient::apply(x) * SummedGradient::apply(w); });
  const auto built = Build(spec, {});
  ASSERT_TRUE(built) << built.error().line();
  const StageGraphs& graphs = *built;
  EXPECT_EQ(graphs.sums, (std::vector{GradientSum{"weight", SummedGradient::kGroup, false}}));
  EXPECT_EQ(Count(graphs.backward_input, "penstock::c10d_all_reduce_start"), 1);  // the input's
  EXPECT_EQ(Count(graphs.backward_weight, "penstock::c10d_all_reduce_start"), 0);
  const StageGraphs as_captured = Build(spec, {.disabled = {"sum_once"}}).value();
  EXPECT_TRUE(as_captured.sums.empty());
  EXPECT_EQ(Count(as_captured.backward_weight, "penstock::c10d_all_reduce_start"), 1);
}

// Two layers, of which the first one reads no earlier stage's output.
StageSpec TwoLayers() {
  StageSpec spec;
  const at::Tensor one = at::randn({8, 8}).requires_grad_(true);
  const at::Tensor two = at::randn({8, 8}).requires_grad_(true);
  spec.parameters = {{"one", one}, {"two", two}};
  spec.inputs = {at::randn({4, 8})};
  spec.forward = [=](std::span<const at::Tensor> inputs) {
    return std::vector{inputs[0].mm(one).tanh().mm(two).tanh()};
  };
  return spec;
}

TEST(SplitInputWeight, LeavesTheGradientsOfSingleWeightsOfAFirstStageToW) {
  const StageSpec spec = TwoLayers();
  const StageGraphs whole = Build(spec, {}).value();
  EXPECT_TRUE(whole.backward_input.nodes.empty());
  const StageGraphs divided = Build(spec, {.divides_first = true}).value();
  EXPECT_EQ(Count(divided.backward_input, "aten::tanh_backward"), 1);  // the last one
  EXPECT_EQ(Count(divided.backward_weight, "aten::add_.Tensor"), 2);
  EXPECT_EQ(divided.backward_input.nodes.size() + divided.backward_weight.nodes.size(),
            whole.backward_weight.nodes.size());
  const Data data = RandomData(spec, 11);
  ExpectSame(RunAutograd(spec, data), RunGraphs(spec, divided, data, {true, true}));
}

// x * w' and y * w, with 8 million multiplications each.
StageSpec LargeMatmuls() {
  StageSpec spec;
  const at::Tensor weight = at::randn({256, 256}).requires_grad_(true);
  spec.parameters = {{"weight", weight}};
  spec.inputs = {at::randn({128, 256})};
  spec.input_gradients = {0};
  spec.forward = [=](std::span<const at::Tensor> inputs) {
    return std::vector{inputs[0].mm(weight.t()).tanh().mm(weight)};
  };
  return spec;
}

TEST(MatmulByOneDnn, StaysCloseOnLargeMatmuls) {
  const StageSpec spec = LargeMatmuls();
  CompileOptions options = {.exact = false};
  options.kernels.onednn_transposed = options.kernels.onednn_plain = 8'000'000;
  const StageGraphs graphs = Build(spec, options).value();
  EXPECT_EQ(Count(graphs.forward, "mkldnn::_linear_pointwise"), 2);
  EXPECT_EQ(Count(graphs.backward_input, "aten::mm"), 0);
  EXPECT_EQ(Count(graphs.backward_weight, "mkldnn::_linear_pointwise"), 0);
  const Data data = RandomData(spec, 12);
  const Answer expected = RunAutograd(spec, data);
  const Answer actual = RunGraphs(spec, graphs, data, {true, false});
  EXPECT_TRUE(at::allclose(expected.outputs[0], actual.outputs[0], 1e-4, 1e-3));
  EXPECT_TRUE(at::allclose(expected.input_gradients[0], actual.input_gradients[0], 1e-4, 1e-2));
  EXPECT_TRUE(at::allclose(expected.gradients[0], actual.gradients[0], 1e-3, 1e-2));
}

TEST(MatmulByOneDnn, FollowsTheKernelChoice) {
  const StageSpec spec = LargeMatmuls();
  CompileOptions options = {.exact = false};
  options.kernels.onednn_transposed = kNeverOneDnn;
  options.kernels.onednn_plain = 8'000'000;
  const StageGraphs plain = Build(spec, options).value();
  EXPECT_EQ(Count(plain.forward, "mkldnn::_linear_pointwise"), 1);
  EXPECT_EQ(Count(plain.forward, "aten::mm"), 1);
  options.kernels.onednn_plain = 8'500'000;
  EXPECT_EQ(Count(Build(spec, options)->forward, "mkldnn::_linear_pointwise"), 0);
}

}  // namespace
}  // namespace penstock::testing
