#pragma once

#include <cstdint>

namespace penstock {

struct AttentionSizes {
  std::int64_t dim, heads, kv_heads, head_dim;
  double qk_norm_epsilon = 0;  // 0: queries and keys are not normalized
};

}  // namespace penstock
