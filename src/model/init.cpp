#include "model/init.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <string_view>

#include "base/mix_bits.h"

namespace penstock {
namespace {

constexpr double kDeviation = 0.02;

// FNV-1a over the name, started at the seed; mixed by splitmix64 so that near seeds are unlike.
std::uint64_t StreamOf(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 14695981039346656037ULL ^ (seed * 0x9E3779B97F4A7C15ULL);
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  }
  return MixBits(hash);
}

bool AddsToResidual(std::string_view name) {
  return name.ends_with("wo.weight") || name.ends_with("w2.weight");
}

}  // namespace

void InitializeParameters(StageModule& stage, const ModelConfig& config) {
  const torch::NoGradGuard no_grad;
  for (auto& parameter : stage.named_parameters()) {
    torch::Tensor value = parameter.value();
    if (value.dim() == 1) {
      value.fill_(1);
      continue;
    }
    const double deviation = AddsToResidual(parameter.key())
                                 ? kDeviation / std::sqrt(2.0 * static_cast<double>(config.layers))
                                 : kDeviation;
    value.normal_(0, deviation,
                  at::detail::createCPUGenerator(StreamOf(config.seed, parameter.key())));
  }
}

}  // namespace penstock
