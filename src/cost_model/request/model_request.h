// A model and the devices that train it, by names and numbers as users give them.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "cost_model/model_costs.h"
#include "schedule/costs.h"

namespace penstock {

inline constexpr const char* kUsualDevice = "h100";

// Sizes that replace a named model's, or describe a model without a name.
struct ModelSizes {
#define MODEL_FIELD(...)
#define SIZE_FIELD(type, member, ...) std::optional<type> member = {};
#include "cost_model/request/model_fields.def"
#undef MODEL_FIELD
#undef SIZE_FIELD
};

// Factors of the speeds that a request or its implementation has: prices under errors of these.
struct SpeedFactors {
  double matmul = 1, memory = 1, link = 1, network = 1;     // of efficiencies, which stay below 1
  double exposed_communication = 1, exposed_gradients = 1;  // of the part that is not hidden
  double device_launch = 1, host_launch = 1;                // of times
};

struct ModelRequest : ModelSizes {
#define MODEL_FIELD(type, member, ...) std::optional<type> member = {};
#define SIZE_FIELD(...)
#include "cost_model/request/model_fields.def"
#undef MODEL_FIELD
#undef SIZE_FIELD
  SpeedFactors speed_factors = {};
  std::optional<ModelShape> shape = {};  // if `model` is a training configuration: its model

  // Reads the model and the device. Requires: `model` is set. Errors are about a
  // field ("micro_batch_size").
  Result<ModelOnCluster> Load() const;
};

// Returns the costs of `replicas` chains of these stages.
Costs ChainsOf(const ModelCosts& of_model, int replicas);
// Returns the costs of `replicas` chains of a model's stages.
Result<Costs> CostsOfChains(const ModelOnCluster& model, const PipelineDivision& division,
                            int replicas);

}  // namespace penstock
