// The backward of the loss in one op computes the same gradient and stores it once.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "graph/run/memory_plan.h"
#include "tests/engine/graph/small_stage.h"

namespace penstock::testing {
namespace {

constexpr std::int64_t kRows = 6, kClasses = 50, kIgnored = -100;

StageSpec Loss(const at::Tensor& targets) {
  StageSpec spec;
  const at::Tensor weight = at::randn({kClasses, 8}).requires_grad_(true);
  spec.parameters = {{"weight", weight}};
  spec.inputs = {at::randn({kRows, 8}), targets};
  spec.input_gradients = {0};
  spec.output_gradient = 0.25;
  spec.forward = [=](std::span<const at::Tensor> inputs) {
    return std::vector{at::cross_entropy_loss(inputs[0].mm(weight.t()), inputs[1])};
  };
  return spec;
}

void ExpectLikeAutograd(const at::Tensor& targets) {
  const StageSpec spec = Loss(targets);
  const StageGraphs graphs = Build(spec, {.exact = false}).value();
  Data data = RandomData(spec, 9);
  data.inputs[1] = targets;
  const Answer expected = RunAutograd(spec, data);
  for (const bool reference : {true, false}) {
    const Answer actual = RunGraphs(spec, graphs, data, {true, reference});
    EXPECT_TRUE(at::equal(expected.outputs[0], actual.outputs[0]));
    EXPECT_TRUE(at::allclose(expected.input_gradients[0], actual.input_gradients[0], 1e-5, 1e-6));
    EXPECT_TRUE(at::allclose(expected.gradients[0], actual.gradients[0], 1e-5, 1e-6));
  }
}

TEST(CrossEntropy, MatchesAutograd) {
  ExpectLikeAutograd(at::randint(kClasses, {kRows}, at::kLong));
}

TEST(CrossEntropy, IgnoresIgnoredTargets) {
  at::Tensor targets = at::randint(kClasses, {kRows}, at::kLong);
  targets[1] = kIgnored;
  targets[4] = kIgnored;
  ExpectLikeAutograd(targets);
}

TEST(CrossEntropy, StoresTheGradientOfTheLogitsOnce) {
  const StageSpec spec = Loss(at::randint(kClasses, {kRows}, at::kLong));
  CompileOptions plain, fused;
  plain.exact = fused.exact = false;
  plain.disabled = {"cross_entropy"};
  const std::int64_t logits = kRows * kClasses * 4;
  const auto peak = [&](const CompileOptions& options) {
    return PlanMemory(Build(spec, options)->backward_input).peak_bytes;
  };
  EXPECT_GE(peak(plain), 2 * logits);
  EXPECT_LT(peak(fused), 2 * logits);
}

}  // namespace
}  // namespace penstock::testing
