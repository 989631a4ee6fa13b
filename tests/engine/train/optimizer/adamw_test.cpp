// AdamW, its decay rule, clipping and the learning rate against PyTorch's own optimizer:
// adamw_fixture.json, which make_adamw_fixture.py writes.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/files.h"
#include "runtime/update/update.h"
#include "train/optimizer/optimizer.h"

namespace penstock {
namespace {

using nlohmann::json;

const json& Fixture() {
  static const json fixture = json::parse(ReadFile(PENSTOCK_ADAMW_FIXTURE).value());
  return fixture;
}

at::Tensor TensorOf(const json& numbers, const std::string& parameter) {
  const auto sizes = Fixture().at("shapes").at(parameter).get<std::vector<std::int64_t>>();
  return at::tensor(numbers.at(parameter).get<std::vector<float>>()).reshape(sizes);
}

OptimizerConfig ConfigOf(const json& given) {
  return {.lr = given.at("lr"),
          .lr_end = given.at("lr_end"),
          .warmup = given.at("warmup"),
          .beta1 = given.at("beta1"),
          .beta2 = given.at("beta2"),
          .epsilon = given.at("epsilon"),
          .weight_decay = given.at("weight_decay"),
          .clip = given.at("clip")};
}

// The tolerance covers fp32 against fp64 and the 1e-6 that PyTorch adds to the norm.
void ExpectClose(const at::Tensor& actual, const at::Tensor& expected, const std::string& what) {
  EXPECT_TRUE(at::allclose(actual, expected, 1e-5, 1e-6)) << what << '\n'
                                                          << actual << '\n'
                                                          << expected;
}

class AdamWFixture : public ::testing::TestWithParam<const char*> {};

TEST_P(AdamWFixture, StepsAsPyTorchDoes) {
  const json& expected = Fixture().at("cases").at(GetParam());
  const OptimizerConfig config = ConfigOf(expected.at("optimizer"));
  const json& steps = expected.at("steps");
  ASSERT_GT(steps.size(), static_cast<std::size_t>(config.warmup));
  auto rate = std::make_shared<LearningRate>();
  rate->config = config;
  rate->steps = static_cast<std::int64_t>(steps.size());
  Optimizer optimizer(rate);
  std::vector<NamedParameter> parameters;
  for (const auto& [name, numbers] : expected.at("start").items()) {
    const at::Tensor value = TensorOf(expected.at("start"), name);
    parameters.push_back({name, value, at::zeros_like(value)});
  }
  UpdateRule rule = {.clip = config.clip};
  bool clipped = false;
  for (std::size_t step = 0; step < steps.size(); ++step) {
    const json& of_step = steps[step];
    for (NamedParameter& parameter : parameters) {
      parameter.gradient.copy_(TensorOf(of_step.at("gradients"), parameter.name));
    }
    const Verdict verdict = Judge(rule, FiniteSquaredNorms(rule, parameters).front());
    EXPECT_NEAR(verdict.norm, of_step.at("norm").get<double>(), 1e-5 * verdict.norm);
    clipped = clipped || verdict.scale != 1;
    for (NamedParameter& parameter : parameters) parameter.gradient.mul_(verdict.scale);
    EXPECT_NEAR(rate->At(static_cast<std::int64_t>(step)), of_step.at("lr").get<double>(), 1e-12);
    optimizer.Update(parameters);
    for (const NamedParameter& parameter : parameters) {
      ExpectClose(parameter.value, TensorOf(of_step.at("weights"), parameter.name),
                  fmt::format("{} after step {}", parameter.name, step));
    }
  }
  EXPECT_EQ(clipped, config.clip > 0) << "no step of the fixture exceeds the clipping norm";
}

std::shared_ptr<LearningRate> ConstantRate(double ema) {
  auto rate = std::make_shared<LearningRate>();
  rate->config.warmup = 0;
  rate->config.lr_end = 1;
  rate->config.ema = ema;
  rate->steps = 10;
  return rate;
}

std::vector<NamedParameter> OneParameter(const at::Tensor& value, const at::Tensor& gradient) {
  std::vector<NamedParameter> parameters;
  parameters.push_back({"layers.0.weight", value, gradient});
  return parameters;
}

// A bf16 gradient is converted in parts.
TEST(AdamWTest, EachPartOfALargeParameterHasItsOwnGradient) {
  at::manual_seed(1);
  const at::Tensor start = at::randn({300'000}), gradient = at::randn({300'000}).to(at::kBFloat16);
  at::Tensor updated[2];
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    Optimizer optimizer(ConstantRate(0));
    at::Tensor& value = updated[dtype == at::kFloat ? 1 : 0];
    value = start.clone();
    optimizer.Update(OneParameter(value, gradient.to(dtype)));
  }
  EXPECT_TRUE(at::allclose(updated[0], updated[1], 1e-5, 1e-6));
}

// Bias-corrected AdamW moves by its learning rate if all gradients are equal.
TEST(AdamWTest, AllUpdatesOfAStepHaveItsLearningRate) {
  const auto rate = ConstantRate(0);
  rate->config.warmup = 4;
  rate->config.weight_decay = 0;
  Optimizer optimizer(rate, /*updates_per_step=*/2);
  const at::Tensor value = at::zeros({1});
  std::vector<double> positions = {0};
  for (int update = 0; update < 4; ++update) {
    optimizer.Update(OneParameter(value, at::ones({1})));
    positions.push_back(-value.item<double>());
  }
  const double lr = rate->At(0);
  for (int update = 0; update < 4; ++update) {
    const double expected = update < 2 ? lr : 2 * lr;
    EXPECT_NEAR(positions[update + 1] - positions[update], expected, 1e-3 * lr) << update;
  }
}

at::Tensor AverageOf(const Optimizer& optimizer) {
  for (const OptimizerTensor& each : optimizer.States()) {
    if (each.kind == kAverageKind) return each.values;
  }
  return {};
}

// A checkpoint after a first step that is skipped has the averages.
TEST(AveragesTest, StartAtTheWeightsEvenIfTheFirstStepIsSkipped) {
  const at::Tensor value = at::full({4}, 2.0);
  Optimizer optimizer(ConstantRate(0.5));
  optimizer.MakeState(OneParameter(value, at::ones({4})));
  optimizer.Skip();
  EXPECT_TRUE(at::equal(AverageOf(optimizer), value));
}

TEST(AveragesTest, StartAtTheWeightsIfTheCheckpointHasNone) {
  const at::Tensor value = at::full({4}, 2.0), start = value.clone();
  const std::vector<NamedParameter> parameters = OneParameter(value, at::ones({4}));
  Optimizer optimizer(ConstantRate(0.5));
  optimizer.MakeState(parameters);
  optimizer.ResumeAfter(3, /*has_averages=*/false);
  optimizer.Update(parameters);
  EXPECT_FALSE(at::equal(value, start));
  EXPECT_TRUE(at::allclose(AverageOf(optimizer), (start + value) / 2));
}

INSTANTIATE_TEST_SUITE_P(Cases, AdamWFixture,
                         ::testing::Values("decay_and_schedule", "clipping", "all"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace penstock
