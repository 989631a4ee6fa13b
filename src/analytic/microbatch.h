// What one rank computes of a microbatch: its size, the number format, and the rank's share.
#pragma once

#include <cstdint>

namespace penstock {

enum class Precision { kFp32, kBf16 };

// Bytes of an element of activations and of the weights that matmuls read.
constexpr double ElementBytes(Precision precision) { return precision == Precision::kBf16 ? 2 : 4; }

struct Microbatch {
  std::int64_t samples = 1;
  std::int64_t sequence = 4096;  // tokens per sample, or of a slice of each
  std::int64_t earlier = 0;  // tokens of each sample in earlier slices, which a slice attends to
  Precision precision = Precision::kBf16;
  // Ranks that divide each layer (Shoeybi et al., Megatron-LM, 2019), with the sequence divided
  // outside of the matmuls (Korthikanti et al. 2022, section 4.2).
  std::int64_t tensor = 1;
  // Replicas that divide the experts of each layer (Lepikhin et al., GShard, 2021). All experts get
  // equally many tokens.
  std::int64_t expert = 1;

  double tokens() const { return static_cast<double>(samples) * static_cast<double>(sequence); }
  // The tokens of a rank outside of the matmuls and of attention.
  double tokens_of_rank() const { return tokens() / static_cast<double>(tensor); }
  double element_bytes() const { return ElementBytes(precision); }
};

// Bytes of elements that are not in the microbatch's precision.
inline constexpr double kFp32ElementBytes = 4;
inline constexpr double kInt64ElementBytes = 8;

}  // namespace penstock
