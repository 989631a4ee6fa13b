// A model that several ranks of a plane divide, and the same model on one rank.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/engine/train/run/trained_model.h"

namespace penstock {

inline constexpr double kDividedRounding = 2e-5;  // relative, after five steps

// Returns five steps of a model with 4 heads, if any of 2 key and value heads, and if any 4
// experts.
inline TrainConfig FiveSteps(const std::string& model) {
  TrainConfig config = TinyConfig();
  config.device = "cpu";
  config.model.name = model;
  config.model.layers = 4;
  config.model.dim = 24;
  config.model.options["heads"] = "4";
  config.steps = 5;
  config.pipeline.microbatches = 4;
  config.pipeline.ranks = config.pipeline.stages = 1;
  // Else Adam divides gradients by numbers that rounding determines.
  config.optimizer.epsilon = 1e-3;
  config.optimizer.clip = 0.3;
  if (model != "gpt2" && model != "deepseek_v3") config.model.options["kv_heads"] = "2";
  if (model == "mixtral" || model == "qwen3_moe" || model == "deepseek_v3") {
    config.model.options["experts"] = "4";
    config.model.options["top_k"] = "2";
  }
  return config;
}

inline double DifferenceOf(const at::Tensor& one, const at::Tensor& other) {
  return ((one - other).norm() / one.norm().clamp_min(1e-12)).item<double>();
}

inline void ExpectEqualToRounding(const TrainedModel& expected, const TrainedModel& actual) {
  ASSERT_EQ(expected.losses.size(), actual.losses.size());
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(expected.losses[i], actual.losses[i], kDividedRounding * expected.losses[i]) << i;
  }
  ASSERT_EQ(expected.parameters.size(), actual.parameters.size());
  for (const auto& [name, value] : expected.parameters) {
    ASSERT_EQ(value.sizes(), actual.parameters.at(name).sizes()) << name;
    EXPECT_LT(DifferenceOf(value, actual.parameters.at(name)), kDividedRounding) << name;
  }
}

}  // namespace penstock
