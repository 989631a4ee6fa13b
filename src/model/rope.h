// Rotary position embedding (Su et al., RoFormer, 2021, section 3.4).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace penstock {

// How frequencies change for sequences that are longer than those of the pretraining.
struct RopeScaling {
  std::string type = "none";  // none, linear or llama3
  // linear: all frequencies are divided by `factor` (Chen et al., Position Interpolation, 2023).
  // llama3: those with fewer than `low_frequency_factor` periods in `original_sequence` tokens are,
  // those with more than `high_frequency_factor` periods are not, and those between are
  // interpolated (the reference code of Llama 3.1).
  double factor = 1;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  std::int64_t original_sequence = 8192;  // tokens
};

// Cosines and sines, both [S, E]. The rotated pairs are (i, i + E/2).
struct RotaryTable {
  at::Tensor cos;
  at::Tensor sin;  // its first half is negated, so that a rotation is x * cos + swap(x) * sin

  static RotaryTable Make(std::int64_t sequence, std::int64_t head_dim, double theta,
                          const RopeScaling& scaling = {});
  // Rotates [B, H, S', E] whose first token is at position `start`. Requires: start + S' <= S.
  at::Tensor Rotate(const at::Tensor& input, std::int64_t start = 0) const;
};

}  // namespace penstock
