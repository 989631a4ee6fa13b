// Initial values of parameters. Each depends only on the seed and the parameter's name.
#pragma once

#include <ATen/core/Generator.h>

#include <string_view>

#include "model/model.h"

namespace penstock {

struct ModelEntry;

// Initializes every parameter of the stage as the model specifies.
void InitializeParameters(const ModelEntry& model, const ModelConfig& config, StageModule& stage);

// Returns the generator for the initial value of a parameter.
at::Generator GeneratorOf(std::uint64_t seed, std::string_view parameter);

// Returns the standard deviation for projections that add to the residual stream, of which each
// layer has two: `deviation` divided by sqrt(2 * layers) (Radford et al. 2019, section 2.3).
double ResidualDeviation(double deviation, std::int64_t layers);

}  // namespace penstock
