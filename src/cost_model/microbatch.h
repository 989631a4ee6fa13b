// What one rank computes of a microbatch: its size, the number format, and the rank's share.
#pragma once

#include <cstdint>

#include "cost_model/implementation.h"
#include "cost_model/precision.h"
#include "model_spec/layer_range.h"

namespace penstock {

// Bytes of an element of activations and of weights outside of quantized matmuls.
constexpr double ElementBytes(Precision precision) { return precision == Precision::kFp32 ? 4 : 2; }

struct Microbatch {
  std::int64_t samples = 1;
  std::int64_t sequence = 4096;  // tokens per sample, or of a slice of each
  std::int64_t earlier = 0;  // tokens of each sample in earlier slices, which a slice attends to
  Precision precision = Precision::kBf16;
  // Ranks that divide each layer (Shoeybi et al., Megatron-LM, 2019), with the sequence divided
  // outside of the matmuls (Korthikanti et al. 2022, section 4.2).
  std::int64_t tensor = 1;
  // Whether they also divide the sequence outside of the matmuls (section 4.2.2 there).
  bool sequence_parallel = true;
  // With Implementation::gathers_once: whether W gathers the inputs of linear layers again, and I
  // the keys and values of `context` (all-gather), instead of reading what F has gathered and kept.
  bool gather_again = false;
  // Ranks that divide the tokens of each sample (Liu et al., Ring Attention, 2023). Each has
  // equally much of the causal triangle.
  std::int64_t context = 1;
  ContextExchange context_exchange = ContextExchange::kRing;
  // Ranks that divide the experts of each layer (Lepikhin et al., GShard, 2021), and ranks that
  // divide each expert (0: `tensor`), taken from the ranks that divide tensors, contexts and data
  // (Liu et al., MoE Parallel Folding, 2025). All experts get equally many tokens.
  std::int64_t expert = 1;
  std::int64_t expert_tensor = 0;
  double expert_imbalance = 1;  // tokens of the busiest rank's experts, relative to the mean
  Profile profile{};

  // The tokens that a rank has after the division by `context`.
  double tokens() const {
    return static_cast<double>(samples) * static_cast<double>(sequence) /
           static_cast<double>(context);
  }
  // The tokens of a rank outside of the matmuls and of attention.
  double tokens_of_rank() const {
    return tokens() / static_cast<double>(sequence_parallel ? tensor : 1);
  }
  // The tokens of inputs of linear layers that a rank keeps from F to W.
  double kept_tokens() const {
    return profile.get().gathers_once && !gather_again ? tokens() : tokens_of_rank();
  }
  // The tokens for which a rank chooses experts.
  double routed_tokens() const { return profile.get().gathers_once ? tokens() : tokens_of_rank(); }
  std::int64_t expert_ranks() const { return expert * expert_division(); }
  std::int64_t expert_division() const { return expert_tensor > 0 ? expert_tensor : tensor; }
  // The tokens of the ranks that divide the same experts' matrices.
  double expert_tokens() const {
    return tokens() / static_cast<double>(tensor) * static_cast<double>(expert_division()) *
           expert_imbalance;
  }
  double element_bytes() const { return ElementBytes(precision); }
};

// Bytes of elements that are not in the microbatch's precision.
inline constexpr double kFp32ElementBytes = 4;
inline constexpr double kInt64ElementBytes = 8;

}  // namespace penstock
