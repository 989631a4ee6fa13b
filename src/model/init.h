// Initial values of parameters, each from the seed and the parameter's name alone.
#pragma once

#include <ATen/core/Generator.h>

#include <string_view>

#include "model/model.h"

namespace penstock {

struct ModelEntry;

// Sets every parameter of the stage as the model says.
void InitializeParameters(const ModelEntry& model, const ModelConfig& config, StageModule& stage);

// The generator that a parameter's initial value is drawn from.
at::Generator GeneratorOf(std::uint64_t seed, std::string_view parameter);

// Deviation of the projections that add to the residual stream, two per layer: `deviation` divided
// by sqrt(2 * layers) (Radford et al. 2019, section 2.3).
double ResidualDeviation(double deviation, std::int64_t layers);

}  // namespace penstock
