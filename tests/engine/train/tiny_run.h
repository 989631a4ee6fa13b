// A model and a text small enough to train in milliseconds.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "config/train_config.h"
#include "tests/engine/train/tested_device.h"
#include "train/evaluation/language_model.h"

namespace penstock {

inline void MakeTiny(TrainConfig& config) {
  config.model.vocabulary = 24;
  config.model.dim = 8;
  config.model.options["heads"] = "2";
  config.model.sequence = 5;
  config.batch = 2;
  config.steps = 3;
  config.optimizer.warmup = 1;
  config.optimizer.lr = 0.01;
  config.device = TestedDevice();
}

inline TrainConfig TinyConfig() {
  TrainConfig config;
  MakeTiny(config);
  return config;
}

// The settings of `penstock train` for a tiny model in `folder`, on the text of a file.
inline std::vector<std::string> TinySettings(const std::string& text, const std::string& folder) {
  return {"data.path=" + text, "folder=" + folder, "dim=16",   "heads=2",
          "sequence=16",       "batch=2",          "steps=4",  "microbatches=4",
          "sample=20",         "ranks=2",          "warmup=1", "device=" + TestedDevice()};
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
