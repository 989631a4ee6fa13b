// Attention to keys and values that travel around the ranks that divide the tokens (Liu et al.,
// Ring Attention with Blockwise Transformers, 2023).
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>

#include "model/context_parallel.h"

namespace penstock {

// The addends of the scores of each of a rank's two blocks of queries, [B, 1, L, K], with all keys
// up to its last one (DocumentMask). None hide no earlier token.
using DocumentMasks = std::array<std::optional<at::Tensor>, 2>;

// Returns the causal attention [B, H, S, E] of the rank's queries [B, H, S, E] to the keys and
// values [B, G, S, E] of all ranks. No rank has those of all tokens at a time: each step computes
// with one rank's, merges the results by their log-sum-exp, and passes the keys and values on. So
// does the gradient, with the gradients of keys and values.
at::Tensor RingAttention(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& values,
                         const DocumentMasks& masks, const ContextPlace& place, double scale);

}  // namespace penstock
