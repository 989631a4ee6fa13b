// Initial values of parameters. Each value depends only on the seed and the parameter's name.
#pragma once

#include <ATen/core/Generator.h>

#include <string_view>

#include "model/model.h"

namespace penstock {

struct ModelEntry;

// Initializes every parameter of the stage by the model's `initialize`. A stage with a part of the
// experts or of the matrices gets that part of the values of all.
void InitializeParameters(const ModelEntry& model, const ModelConfig& config,
                          const LayerRange& range, StageModule& stage);

// Returns the generator for the initial value of a parameter.
at::Generator GeneratorOf(std::uint64_t seed, std::string_view parameter);

// Returns the standard deviation for the two projections per layer that add to the residual stream:
// `deviation` / sqrt(2 * layers) (Radford et al. 2019, section 2.3).
double ResidualDeviation(double deviation, std::int64_t layers);

// Initializes a parameter as GPT-2 does: biases 0, weights of norms 1, and matrices from a normal
// distribution with standard deviation 0.02, or ResidualDeviation for the matrices `wo` and `w2`.
void InitializeTransformer(const ModelConfig& config, std::string_view parameter,
                           torch::Tensor& value, const at::Generator& generator);

}  // namespace penstock
