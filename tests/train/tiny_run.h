// A model and a text small enough to train in milliseconds.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "config/train_config.h"
#include "train/evaluation/language_model.h"

namespace penstock {

inline TrainConfig TinyConfig() {
  TrainConfig config;
  config.model.vocabulary = 24;
  config.model.dim = 8;
  config.model.options["heads"] = "2";
  config.model.sequence = 5;
  config.batch = 2;
  config.steps = 3;
  config.optimizer.warmup = 1;
  config.optimizer.lr = 0.01;
  return config;
}

inline std::vector<std::uint8_t> Text() {
  std::mt19937 random(11);
  std::vector<std::uint8_t> text(400);
  for (auto& byte : text) byte = static_cast<std::uint8_t>(random() % 24);
  return text;
}

inline std::map<std::string, at::Tensor> ByName(const LanguageModel& model) {
  std::map<std::string, at::Tensor> parameters;
  for (const auto& [name, value] : model.Parameters()) parameters.emplace(name, value.clone());
  return parameters;
}

}  // namespace penstock
