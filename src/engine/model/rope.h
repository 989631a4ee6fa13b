// Rotary position embedding (Su et al., RoFormer, 2021, section 3.4).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model_spec/rope_scaling.h"

namespace penstock {

// Cosines and sines by position, both [S, E], or by token, [B, 1, S, E]. The rotated pairs are
// (i, i + E/2).
struct RotaryTable {
  at::Tensor cos;
  at::Tensor sin;  // its first half is negated, so that a rotation is x * cos + swap(x) * sin

  static RotaryTable Make(std::int64_t sequence, std::int64_t head_dim, double theta,
                          const RopeScaling& scaling = {});
  // Returns the rows of a table by position for tokens at these positions, [B, S'] int64.
  RotaryTable At(const at::Tensor& positions) const;
  // Rotates [B, H, S, E] by the rows of its tokens.
  at::Tensor Rotate(const at::Tensor& input) const;
};

}  // namespace penstock
