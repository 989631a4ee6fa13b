// What capture accepts, how it handles in-place ops and views, and what it rejects.
#include "graph/capture/capture.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <future>

#include "graph/ir/print.h"
#include "tests/engine/graph/small_stage.h"
#include "tests/results.h"

namespace penstock::testing {
namespace {

using In = const at::Tensor&;
using Forward = std::function<at::Tensor(const at::Tensor& input, const at::Tensor& weight)>;

StageSpec Spec(const Forward& forward) {
  StageSpec spec;
  const at::Tensor weight = at::randn({4, 6}).requires_grad_(true);
  spec.parameters = {{"weight", weight}};
  spec.inputs = {at::randn({4, 6})};
  spec.input_gradients = {0};
  spec.forward = [=](std::span<const at::Tensor> inputs) {
    return std::vector{forward(inputs[0], weight)};
  };
  return spec;
}

struct CaptureCase {
  const char* name;
  Forward forward;
};
void PrintTo(const CaptureCase& value, std::ostream* out) { *out << value.name; }

class Accepted : public ::testing::TestWithParam<CaptureCase> {};

TEST_P(Accepted, MatchesAutograd) {
  const StageSpec spec = Spec(GetParam().forward);
  const auto graphs = ValueOf(Build(spec));
  const Data data = RandomData(spec, 5);
  const Answer expected = RunAutograd(spec, data);
  ExpectSame(expected, RunGraphs(spec, graphs, data, {true, true}));
  ExpectSame(expected, RunGraphs(spec, graphs, data, {true, false}));
}

at::Tensor Scaled(const at::Tensor& x, const at::Tensor& w) { return x * w; }

INSTANTIATE_TEST_SUITE_P(
    Capture, Accepted,
    ::testing::Values(
        CaptureCase{"InPlace", [](In x, In w) { return Scaled(x, w).add_(1.5); }},
        CaptureCase{"InPlaceThenReadThroughAView",
                    [](In x, In w) {
                      const at::Tensor y = Scaled(x, w);
                      const at::Tensor transposed = y.t();
                      y.mul_(2);
                      return transposed + y.t();
                    }},
        CaptureCase{"InPlaceThroughAView",
                    [](In x, In w) {
                      const at::Tensor y = Scaled(x, w);
                      y.view({24}).mul_(3);
                      return y + 1;
                    }},
        CaptureCase{"InPlaceOfAPart",
                    [](In x, In w) {
                      const at::Tensor y = Scaled(x, w);
                      y.select(0, 1).add_(2);
                      y.narrow(1, 2, 3).mul_(x.narrow(1, 0, 3));
                      return y * w;
                    }},
        CaptureCase{"FillAnEmptyTensor",
                    [](In x, In w) {
                      const at::Tensor y = at::empty_like(x);
                      y.select(0, 0).fill_(1);
                      y.narrow(0, 1, 3).copy_(Scaled(x, w).narrow(0, 0, 3));
                      return y;
                    }},
        CaptureCase{"Split",
                    [](In x, In w) {
                      const auto parts = Scaled(x, w).chunk(3, 1);
                      return at::stack({parts[2], parts[0] * parts[1], parts[1]}, 1);
                    }},
        CaptureCase{"IndexByTensors",
                    [](In x, In w) {
                      const at::Tensor rows = at::full({2}, 3, at::kLong);
                      return Scaled(x, w).index({rows});
                    }},
        CaptureCase{
            "NativeDropout",
            [](In x, In w) { return std::get<0>(at::native_dropout(Scaled(x, w), 0.5, true)); }},
        CaptureCase{"Dropout", [](In x, In w) { return at::dropout(Scaled(x, w), 0.5, true); }},
        CaptureCase{"DropoutTwice",
                    [](In x, In w) {
                      const at::Tensor y = Scaled(x, w);
                      return at::dropout(y, 0.5, true) + at::dropout(y, 0.5, true);
                    }},
        CaptureCase{"RandomNumbers",
                    [](In x, In w) {
                      return Scaled(x, w) + at::randn_like(x) * at::rand({4, 6}) +
                             at::empty_like(x).normal_(2, 3);
                    }},
        CaptureCase{"AttentionWithDropout",
                    [](In x, In w) {
                      const at::Tensor y = Scaled(x, w).view({1, 1, 4, 6});
                      return at::scaled_dot_product_attention(y, y, y, {}, 0.3, true);
                    }},
        CaptureCase{"UnsqueezeInPlace",
                    [](In x, In w) {
                      at::Tensor y = Scaled(x, w);
                      y.unsqueeze_(0);
                      return y + x;
                    }},
        CaptureCase{"ResultIsAView", [](In x, In w) { return Scaled(x, w).t(); }},
        CaptureCase{"SameExpressionTwice", [](In x, In w) { return Scaled(x, w) + x * w; }},
        CaptureCase{"UnusedWeight", [](In x, In) { return x * 2; }}),
    [](const auto& info) { return info.param.name; });

class Rejected : public ::testing::TestWithParam<CaptureCase> {};

TEST_P(Rejected, WithOneLine) {
  const auto joint = CaptureStage(Spec(GetParam().forward));
  ASSERT_FALSE(joint);
  EXPECT_EQ(joint.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(joint.error().line().rfind("capture: ", 0), 0U) << joint.error().line();
  EXPECT_EQ(joint.error().line().find('\n'), std::string::npos) << joint.error().line();
  // A rejected capture leaves no state: the next capture on this thread works.
  EXPECT_TRUE(CaptureStage(Spec(Scaled)));
}

INSTANTIATE_TEST_SUITE_P(
    Capture, Rejected,
    ::testing::Values(
        CaptureCase{"Item", [](In x, In w) { return Scaled(x, w) * x.sum().item<float>(); }},
        CaptureCase{"ShapeFromData",
                    [](In x, In w) { return at::masked_select(Scaled(x, w), x > 0); }},
        CaptureCase{"MutatesItsInput",
                    [](In x, In w) {
                      x.detach().add_(1);
                      return Scaled(x, w);
                    }},
        CaptureCase{"MutatesItsParameter",
                    [](In x, In w) {
                      w.detach().add_(1);
                      return Scaled(x, w);
                    }},
        CaptureCase{"Throws", [](In x, In w) { return at::mul(x, w.narrow(0, 0, 3)); }}),
    [](const auto& info) { return info.param.name; });

TEST(Capture, SeesOpsOnceAndFoldsConstants) {
  StageSpec spec = Spec([](In x, In w) {
    const at::Tensor table = at::full({6}, 2.0).cumsum(0);
    return Scaled(x, w) * table + table;
  });
  const auto graphs = ValueOf(Build(spec));
  EXPECT_EQ(graphs.forward.nodes.size(), 3U);  // mul, mul, add
}

// The process's generator, whose state each capture restores, decides nothing.
TEST(Capture, OpsOfThreadsThatCaptureAtOnceHaveTheirOwnNumbers) {
  const auto capture = [] {
    StageSpec spec = Spec([](In x, In w) {
      at::Tensor y = Scaled(x, w);
      for (int i = 0; i < 8; ++i) y = at::dropout(y, 0.5, true);
      return y;
    });
    spec.numbers_random_ops = true;
    return PrintGraph(CaptureStage(spec).value().graph);
  };
  const std::string alone = capture();
  std::vector<std::future<int>> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.push_back(std::async(std::launch::async, [&] {
      int others = 0;
      for (int i = 0; i < 40; ++i) others += capture() != alone;
      return others;
    }));
  }
  for (std::future<int>& others : threads) EXPECT_EQ(others.get(), 0);
}

TEST(Capture, ComputesOneGradientForTiedWeights) {
  const at::Tensor shared = at::randn({6, 6}).requires_grad_(true);
  StageSpec spec = {.parameters = {{"in", shared}, {"out", shared}},
                    .inputs = {at::randn({4, 6})},
                    .input_gradients = {0}};
  spec.forward = [=](std::span<const at::Tensor> inputs) {
    return std::vector{inputs[0].mm(shared).tanh().mm(shared.t())};
  };
  const auto graphs = ValueOf(Build(spec));
  const Data data = RandomData(spec, 5);
  Answer expected = RunAutograd(spec, data);
  expected.gradients[1] = at::Tensor();
  ExpectSame(expected, RunGraphs(spec, graphs, data, {true, false}));
}

// Inputs: two with a gradient, ids and a mask without. Outputs: computed, passed through, and a
// parameter.
StageSpec SeveralTensors() {
  StageSpec spec;
  const at::Tensor weight = at::randn({6, 6}).requires_grad_(true);
  spec.parameters = {{"weight", weight}};
  spec.inputs = {at::randn({4, 6}), at::full({4}, 1, at::kLong), at::randn({4, 6}),
                 at::randn({4, 1})};
  spec.input_gradients = {2, 0};
  spec.forward = [=](std::span<const at::Tensor> inputs) {
    const at::Tensor &x = inputs[0], &ids = inputs[1], &y = inputs[2], &mask = inputs[3];
    return std::vector{
        (x.mm(weight).tanh() * y * mask).t(),        ids, y, ids + 1, mask, weight.view({36}),
        y * weight.index_select(0, ids.remainder(6))};
  };
  return spec;
}

TEST(Capture, AcceptsSeveralTensors) {
  const StageSpec spec = SeveralTensors();
  for (const std::int64_t budget : {kSaveAll, std::int64_t{0}}) {
    const auto graphs =
        ValueOf(Build(spec, {.save_budget = budget, .save_budget_for_weight = budget}));
    std::vector<bool> has_gradient;
    for (const ValueId gradient : graphs.joint.output_gradients) {
      has_gradient.push_back(gradient != kNoValue);
    }
    EXPECT_EQ(has_gradient, (std::vector<bool>{true, false, true, false, false, true, true}));
    const Data data = RandomData(spec, 5);
    const Answer expected = RunAutograd(spec, data);
    for (const bool split : {true, false}) {
      for (const bool reference : {true, false}) {
        const Answer actual = RunGraphs(spec, graphs, data, {split, reference});
        ExpectSame(expected, actual);
        EXPECT_TRUE(actual.outputs[2].is_alias_of(data.inputs[2])) << "passing through copies";
        EXPECT_FALSE(actual.outputs[5].is_alias_of(spec.parameters[0].tensor));
      }
    }
  }
}

TEST(Capture, AssignsSlotsToPorts) {
  const StageProgram program = CompileStage(SeveralTensors(), {}).value();
  ASSERT_EQ(program.inputs.size(), 4U);
  ASSERT_EQ(program.outputs.size(), 7U);
  for (const std::size_t i : {0U, 1U, 2U, 3U}) {
    EXPECT_EQ(program.inputs[i].has_gradient, i == 0 || i == 2) << i;
    EXPECT_EQ(program.inputs[i].slot, static_cast<int>(i));
  }
  EXPECT_EQ(program.inputs[1].type.dtype, at::kLong);
  EXPECT_GE(program.outputs[2].slot, 0);  // part of y's gradient
  EXPECT_EQ(program.outputs[3].slot, -1);
  EXPECT_EQ(program.outputs[0].type, (TensorType{at::kFloat, {6, 4}, {4, 1}}));
}

TEST(Capture, ReturnsZeroGradientForAnUnreadInput) {
  StageSpec spec = Spec(Scaled);
  spec.inputs.push_back(at::randn({3}));
  spec.input_gradients = {0, 1};
  const auto graphs = ValueOf(Build(spec));
  const Data data = RandomData(spec, 5);
  const Answer actual = RunGraphs(spec, graphs, data, {});
  ExpectSame(RunAutograd(spec, data), actual);
  EXPECT_TRUE(at::equal(actual.input_gradients[1], at::zeros({3})));
  for (const ValueId saved : graphs.backward_input.inputs) {
    EXPECT_NE(saved, graphs.forward.inputs[1]) << "an unread input is kept alive";
  }
}

class NoOutput : public ::testing::TestWithParam<std::vector<at::Tensor>> {};

TEST_P(NoOutput, IsRejected) {
  StageSpec spec = Spec(Scaled);
  spec.forward = [](std::span<const at::Tensor>) { return GetParam(); };
  EXPECT_TRUE(Refused(CaptureStage(spec), "output"));
}

INSTANTIATE_TEST_SUITE_P(Capture, NoOutput,
                         ::testing::Values(std::vector<at::Tensor>{},
                                           std::vector<at::Tensor>{at::Tensor()}));

TEST(Capture, RejectsOverlappingParameters) {
  const at::Tensor whole = at::randn({4, 6});
  StageSpec spec = Spec(Scaled);
  spec.parameters.push_back({"rows", whole.narrow(0, 0, 2)});
  spec.parameters.push_back({"more", whole.narrow(0, 1, 2)});
  EXPECT_FALSE(CaptureStage(spec));
}

TEST(Capture, RejectsALossThatIsNotAScalar) {
  StageSpec spec = Spec(Scaled);
  spec.output_gradient = 1.0;
  EXPECT_FALSE(CaptureStage(spec));
}

TEST(Capture, RejectsAGradientOfTokens) {
  StageSpec spec = Spec(Scaled);
  spec.inputs = {at::full({4, 6}, 1, at::kLong)};
  EXPECT_FALSE(CaptureStage(spec));
}

}  // namespace
}  // namespace penstock::testing
