// AdamW, its decay rule, clipping and the learning rate against PyTorch's own optimizer:
// adamw_fixture.json, which make_adamw_fixture.py writes.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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

INSTANTIATE_TEST_SUITE_P(Cases, AdamWFixture,
                         ::testing::Values("decay_and_schedule", "clipping", "all"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace penstock
