// A training run as `penstock simulate` asks about it: the question that a training configuration
// answers for the simulator.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "config/train_config.h"
#include "model_spec/model_shape.h"

namespace penstock {

struct RunToPrice {
  ModelShape shape;
  // Options of `penstock simulate` by name ("micro_batch_size") with their values as text. `pass`
  // may be there several times. The device is not among them: a configuration names none.
  std::vector<std::pair<std::string, std::string>> fields;
  // Keys of the configuration that change the time or the memory of the run, but not the price.
  std::vector<std::string> not_priced;
};

// Returns whether a YAML file is a training configuration and not one of `penstock simulate`: it
// has a section that only the former has.
bool IsTrainConfig(const YAML::Node& root);

// Returns what to price. Choices that the configuration leaves open are made as on a machine with
// at least 4 cores. Errors: as ChooseSchedule; kInvalidArgument for a model that does not declare
// its sizes.
Result<RunToPrice> RunToPriceOf(TrainConfig config);

}  // namespace penstock
