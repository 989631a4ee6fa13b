// A model and the devices that train it, by names and numbers as users give them.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "analytic/model_costs.h"
#include "base/result.h"
#include "schedule/costs.h"

namespace penstock {

inline constexpr std::array<std::string_view, 2> kPrecisionNames = {"bf16", "f32"};
inline constexpr const char* kUsualDevice = "h100";

struct ModelRequest {
  std::optional<std::string> model = {};   // a published name, or a config.json
  std::optional<std::string> device = {};  // a known name, or a YAML file
  std::optional<std::string> nodes = {};   // "8x8"
  std::optional<std::string> precision = {};
  std::optional<int> micro_batch_size = {}, sequence = {};
  std::optional<int> tensor = {}, data = {}, expert = {}, zero = {};
  std::optional<double> flops_efficiency = {}, bandwidth_efficiency = {};
  std::optional<double> hidden_communication = {};
  std::optional<ModelShape> shape = {};  // if `model` is a training configuration: its model

  // Reads the model and the device. Requires: `model` is set. Errors are about a
  // field ("micro_batch_size").
  Result<ModelOnCluster> Load() const;
};

// Returns the costs of `replicas` chains of stages.
Result<Costs> CostsOfChains(const ModelOnCluster& model, const PipelineDivision& division,
                            int replicas);

}  // namespace penstock
