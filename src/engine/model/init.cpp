#include "model/init.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

#include <cmath>
#include <string_view>

#include "base/mix_bits.h"
#include "model/model_entry.h"

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
  for (auto& parameter : stage.named_parameters()) {
    const std::string& name = parameter.key();
    torch::Tensor& value = parameter.value();
    const at::Generator generator = GeneratorOf(config.seed, name);
    if (range.expert_ranks == 1 || !model.is_per_expert(name)) {
      model.initialize(config, name, value, generator);
      continue;
    }
    std::vector<std::int64_t> sizes = value.sizes().vec();
    sizes[0] *= range.expert_ranks;
    torch::Tensor all = at::empty(sizes, value.options());
    model.initialize(config, name, all, generator);
    value.copy_(all.narrow(0, range.expert_rank * value.size(0), value.size(0)));
  }
}

}  // namespace penstock
