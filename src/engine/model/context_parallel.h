// Context parallelism: the ranks of a group divide the tokens of each sample. A sample, or a slice
// of it, is 2 * ranks equal blocks, the last of which may end with padding. Rank r has block r,
// then block 2 * ranks - 1 - r, so that causal attention is as much work on each rank (The Llama 3
// Herd of Models, 2024, section 3.3.2).
//
// Each rank has all weights, and computes the gradients that follow from its tokens. The sum over
// the ranks is the gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "model_spec/layer_range.h"

namespace penstock {

// Tokens `first` to `first + length` - 1 of a rank, which follow each other from `position` on.
struct TokenRun {
  std::int64_t first = 0, length = 0, position = 0;
};

// A rank of those that divide the tokens.
struct ContextPlace {
  int ranks = 1, rank = 0;
  ContextExchange exchange = ContextExchange::kAllGather;

  static ContextPlace Of(const LayerRange& range) {
    return {range.context_ranks, range.context_rank, range.context_exchange};
  }
  bool is_ring() const { return ranks > 1 && exchange == ContextExchange::kRing; }
  bool exchanges_heads() const { return ranks > 1 && exchange == ContextExchange::kUlysses; }
  // Returns the runs that `tokens` tokens of this rank consist of.
  std::vector<TokenRun> Runs(std::int64_t tokens) const;
};

// Returns the rank's tokens of samples with all tokens, along a dimension. `padding` completes the
// last block.
at::Tensor TokensOf(const ContextPlace& place, const at::Tensor& all, std::int64_t dimension,
                    const at::Scalar& padding = 0);
// Returns all ranks' tokens, with padding, in the order of samples. They are along dimension 0.
at::Tensor GatherSamples(const at::Tensor& own, const ContextPlace& place);
// Sends heads [B, H, S, E] of the rank's tokens, and returns part `rank` of them for all tokens,
// [B, H / ranks, S', E]. ReturnHeads does the opposite. They are each other's gradients.
at::Tensor ExchangeHeads(const at::Tensor& own, const ContextPlace& place);
at::Tensor ReturnHeads(const at::Tensor& all, const ContextPlace& place);
// Returns keys or values [B, G, S, E] for `heads` heads, each for equally many of them in turn.
at::Tensor RepeatHeads(const at::Tensor& x, std::int64_t heads);
// Returns the sum over the ranks for a result that all of them compute from it, which counts once:
// the gradient of the sum is the gradient of each summand.
at::Tensor SumOverContext(const at::Tensor& x, const ContextPlace& place);
// Returns the tokens that follow the rank's [B, S] in their samples, and `none` after the last one.
at::Tensor FollowingTokens(const at::Tensor& own, std::int64_t none, const ContextPlace& place);
// Returns the index of the first token of each token's document (DocumentStarts), for the rank's
// tokens [B, S].
at::Tensor DocumentStartsOf(const at::Tensor& tokens, std::int64_t end, const ContextPlace& place);

}  // namespace penstock
