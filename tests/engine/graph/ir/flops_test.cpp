// FlopsOf knows every op in the graphs of all models, after all passes.
#include "graph/ir/flops.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "graph/passes/passes.h"
#include "model/model.h"
#include "tests/engine/graph/small_stage.h"
#include "tests/results.h"

namespace penstock::testing {
namespace {

StageSpec WholeOf(std::string_view model, double dropout) {
  ModelConfig config = {.name = std::string(model), .vocabulary = 12, .dim = 32, .layers = 2};
  config.options["heads"] = "2";
  config.sequence = 64;
  config.options["dropout"] = fmt::format("{}", dropout);
  const auto stage = BuildStage(config, SplitLayers(config.layers, 1).value().front()).value();
  stage->train();
  StageSpec spec;
  for (const auto& each : stage->named_parameters()) {
    spec.parameters.push_back({each.key(), each.value()});
  }
  spec.inputs = {at::zeros({2, config.sequence}, at::kLong)};
  spec.forward = [stage](std::span<const at::Tensor> inputs) { return stage->ForwardAll(inputs); };
  return spec;
}

TEST(Flops, AreKnownForTheOpsOfAllModels) {
  ASSERT_FALSE(ModelNames().empty());
  std::vector<StageSpec> specs = {WholeModel()};
  for (const std::string_view model : ModelNames()) {
    for (const double dropout : {0.0, 0.25}) specs.push_back(WholeOf(model, dropout));
  }
  for (const StageSpec& spec : specs) {
    for (const bool exact : {true, false}) {
      auto graphs = ValueOf(Build(spec, {.exact = exact, .fuse = !exact}));
      for (const Graph* graph : AllGraphs(graphs)) {
        EXPECT_TRUE(Succeeds(FlopsOf(*graph)));
      }
    }
  }
}

TEST(Flops, OfConvolutionsAreThoseOfEachOutputTimesTheFilter) {
  for (const bool transposed : {false, true}) {
    StageSpec spec;
    const at::Tensor weight = at::randn({2, 2, 3}).requires_grad_(true);
    spec.parameters = {{"weight", weight}};
    spec.inputs = {at::randn({1, 2, 8})};
    spec.forward = [=](std::span<const at::Tensor> inputs) {
      return std::vector{at::convolution(inputs[0], weight, {}, {1}, {0}, {1}, transposed, {0}, 1)};
    };
    const auto graphs = ValueOf(Build(spec));
    EXPECT_EQ(ValueOf(FlopsOf(graphs.forward)), 2 * (transposed ? 8 : 6) * 2 * 2 * 3);
    EXPECT_EQ(ValueOf(FlopsOf(graphs.backward_weight)), ValueOf(FlopsOf(graphs.forward)));
  }
}

TEST(Flops, OfAnUnknownOpAreAnError) {
  StageSpec spec;
  const at::Tensor weight = at::randn({8}).requires_grad_(true);
  spec.parameters = {{"weight", weight}};
  spec.inputs = {at::randn({1, 2, 8})};
  spec.forward = [=](std::span<const at::Tensor> inputs) {
    return std::vector{at::fft_rfft(inputs[0] * weight).abs()};
  };
  const auto graphs = ValueOf(Build(spec));
  EXPECT_TRUE(Refused(FlopsOf(graphs.forward), "the FLOPs of aten::_fft_r2c"));
  // Passes that plan by FLOPs estimate it by its bytes.
  EXPECT_TRUE(Succeeds(Build(spec, {.save_budget = 0})));
}

}  // namespace
}  // namespace penstock::testing
