// The part of a model that a pipeline stage has.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace penstock {

// The group of the ranks that divide the experts of their stages, for collectives.
inline constexpr int kExpertGroup = -2;
// The group of the ranks that divide the matrices of their stages.
inline constexpr int kTensorGroup = -3;
// The group of the ranks that divide the tokens of each sample.
inline constexpr int kContextGroup = -4;

// What attention exchanges if ranks divide the tokens of samples: keys and values from rank to rank
// (Liu et al., Ring Attention, 2023), those of all tokens at once, or heads for tokens, so that
// each rank has all tokens of some heads (Jacobs et al., DeepSpeed Ulysses, 2023).
enum class ContextExchange : std::uint8_t { kRing, kAllGather, kUlysses };
inline constexpr std::array<std::string_view, 3> kContextExchangeNames = {"ring", "all-gather",
                                                                          "ulysses"};

// The part of a model that a stage contains.
struct LayerRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;    // past the last layer
  bool embedding = false;  // takes token ids
  bool head = false;       // returns logits
  // The stage has shard `expert_rank` of `expert_ranks` equal shards of each layer's experts. With
  // several, it exchanges tokens in kExpertGroup with the stages that have the others.
  int expert_ranks = 1;
  int expert_rank = 0;
  // The stage has part `tensor_rank` of `tensor_ranks` parts of each layer's matrices. With
  // several, it adds results in kTensorGroup with the stages that have the others.
  int tensor_ranks = 1;
  int tensor_rank = 0;
  // Whether each of these ranks has its share of the tokens between layers, one after another.
  bool divides_tokens = false;
  // Whether each of these ranks has whole experts, and sends them its share of the tokens. Requires
  // divides_tokens.
  bool has_whole_experts = false;
  // The stage has part `context_rank` of the tokens of each sample (ContextTokens), and exchanges
  // keys and values in kContextGroup with the stages that have the others.
  int context_ranks = 1;
  int context_rank = 0;
  ContextExchange context_exchange = ContextExchange::kAllGather;
  // Whether the embedding and the head are outside of the stages, sharded over the ranks. The stage
  // with `embedding` then takes the embedded tokens, and the one with `head` returns normalized
  // hidden states.
  bool sharded_vocabulary = false;
  // Layers that predict further tokens, which come after the others.
  std::int64_t predictors = 0;

  bool has_embedding() const { return embedding && !sharded_vocabulary; }
  bool has_logits() const { return head && !sharded_vocabulary; }
};

// Returns how many tokens of a sample, or of a slice of it, each of `ranks` ranks has that divide
// them: two of 2 * ranks equal blocks. Padding completes the last block.
std::int64_t ContextTokens(std::int64_t tokens, int ranks);

// Returns the ranges of `stages` stages, divided as DivideLayers (base/divide_layers.h) does.
// Errors: as DivideLayers.
Result<std::vector<LayerRange>> SplitLayers(std::int64_t layers, int stages,
                                            std::span<const std::int64_t> counts = {});

}  // namespace penstock
