#include "model/init.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

#include <cmath>
#include <string_view>

#include "base/index.h"
#include "base/mix_bits.h"
#include "model/model_entry.h"
#include "model/tensor_parallel.h"

namespace penstock {

// FNV-1a over the name, starting from the seed, mixed by splitmix64 so that similar seeds give
// independent numbers.
at::Generator GeneratorOf(std::uint64_t seed, std::string_view parameter) {
  std::uint64_t hash = 14695981039346656037ULL ^ (seed * 0x9E3779B97F4A7C15ULL);
  for (const char c : parameter) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  }
  return at::detail::createCPUGenerator(MixBits(hash));
}

double ResidualDeviation(double deviation, std::int64_t layers) {
  return deviation / std::sqrt(2.0 * static_cast<double>(layers));
}

void InitializeTransformer(const ModelConfig& config, std::string_view parameter,
                           torch::Tensor& value, const at::Generator& generator) {
  if (value.dim() == 1) {  // only norms and biases are vectors
    value.fill_(parameter.ends_with(".bias") ? 0 : 1);
    return;
  }
  constexpr double kDeviation = 0.02;
  const bool adds_to_residual =
      parameter.ends_with("wo.weight") || parameter.ends_with("w2.weight");
  value.normal_(0, adds_to_residual ? ResidualDeviation(kDeviation, config.layers) : kDeviation,
                generator);
}

void InitializeParameters(const ModelEntry& model, const ModelConfig& config,
                          const LayerRange& range, StageModule& stage) {
  const torch::NoGradGuard no_grad;
  const std::map<std::string, ParameterPart> parts = PartsOf(stage);
  for (auto& parameter : stage.named_parameters()) {
    const std::string& name = parameter.key();
    torch::Tensor& value = parameter.value();
    const at::Generator generator = GeneratorOf(config.seed, name);
    const bool has_experts = range.expert_ranks > 1 && model.is_per_expert(name);
    const auto part = parts.find(name);
    if (!has_experts && part == parts.end()) {
      model.initialize(config, name, value, generator);
      continue;
    }
    std::vector<std::int64_t> sizes = value.sizes().vec();
    if (has_experts) sizes[0] *= range.expert_ranks;
    if (part != parts.end()) sizes[Index(part->second.dimension)] = part->second.whole;
    torch::Tensor own = at::empty(sizes, value.options());
    model.initialize(config, name, own, generator);
    if (has_experts) own = own.narrow(0, range.expert_rank * value.size(0), value.size(0));
    value.copy_(part == parts.end() ? own : part->second.Of(own));
  }
}

}  // namespace penstock
