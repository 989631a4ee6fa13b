// The sizes of a model's architecture, from which its parameters, FLOPs and bytes follow. They need
// neither libtorch nor a captured stage.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"

namespace penstock {

// An upper limit of every size.
inline constexpr std::int64_t kMostShapeSize = 1'000'000'000;

// Multi-head latent attention (DeepSeek-V2, DeepSeek-AI 2024, section 2.1).
struct LatentShape {
  std::int64_t query_rank = 0;  // 0: queries have no latent vector
  std::int64_t kv_rank = 0;
  std::int64_t plain_dim = 0;   // of a head's queries and keys, without positions
  std::int64_t rotary_dim = 0;  // of a head's queries and keys, with rotary positions
  std::int64_t value_dim = 0;   // of a head's values

  std::int64_t query_dim() const { return plain_dim + rotary_dim; }
  friend bool operator==(const LatentShape&, const LatentShape&) = default;
};

struct ExpertShape {
  std::int64_t experts = 0;
  std::int64_t top_k = 0;
  std::int64_t hidden = 0;        // width of an expert
  std::int64_t shared = 0;        // experts that process every token
  std::int64_t dense_layers = 0;  // first layers without experts
  std::int64_t every = 1;         // of the others, every nth layer has experts
  // How the router computes weights and balances the load, which determines what it saves.
  bool normalizes = true;  // scales the weights of a token's experts to a sum of 1
  bool scales = false;     // then multiplies them by a factor
  enum class Balance { kNone, kLoss, kBias } balance = Balance::kLoss;
  std::int64_t shared_hidden = 0;  // of all shared experts together; 0: as wide as as many experts
  bool shared_gate = false;        // a factor of the shared experts' output per token
  std::int64_t latent = 0;         // width of what experts read and return; 0: hidden states'
  bool biases = false;             // of the router and of experts

  std::int64_t shared_width() const { return shared_hidden > 0 ? shared_hidden : shared * hidden; }
  friend bool operator==(const ExpertShape&, const ExpertShape&) = default;
};

// The state-space layers of a hybrid (Dao and Gu, Transformers are SSMs, 2024, section 7).
struct MambaShape {
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t state = 128;  // size of a head's state per channel
  std::int64_t groups = 8;   // of heads that share their B and C
  std::int64_t convolution = 4;

  std::int64_t inner() const { return heads * head_dim; }
  friend bool operator==(const MambaShape&, const MambaShape&) = default;
};

// Attention by a gated delta rule instead of scores (Yang et al., Gated Delta Networks, 2024).
struct DeltaShape {
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t convolution = 4;

  std::int64_t keys() const { return key_heads * head_dim; }
  std::int64_t values() const { return value_heads * head_dim; }
  friend bool operator==(const DeltaShape&, const DeltaShape&) = default;
};

// The layers of a hybrid, one letter each, as NVIDIA writes them.
enum class LayerKind : char {
  kBlock = 0,  // attention and feed-forward part
  kMamba = 'M',
  kAttention = '*',
  kFeedForward = '-',
  kExperts = 'E',
};

enum class Architecture {
  kDecoder,  // RMSNorm, rotary positions, SwiGLU, no biases
  kGpt2,     // LayerNorm, learned positions, GELU, biases
};

struct ModelShape {
  std::string name;
  Architecture architecture = Architecture::kDecoder;
  std::int64_t vocabulary = 0;
  std::int64_t dim = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t hidden = 0;     // width of a dense feed-forward layer
  std::int64_t positions = 0;  // rows of the table of learned positions; 0: there is none
  bool qk_norm = false;        // RMSNorm of each head's queries and keys
  bool tied = false;           // the head is the embedding
  std::optional<LatentShape> latent = {};
  std::optional<ExpertShape> experts = {};
  bool gated = true;            // a decoder's feed-forward layers and experts have a gate (SwiGLU)
  std::int64_t window = 0;      // tokens that attention reaches back; 0: all
  std::int64_t full_every = 0;  // with a window: every nth layer still attends to all; 0: none
  std::int64_t predictors = 0;  // layers that predict further tokens (DeepSeek-V3, section 2.2)
  bool shared_predictors = false;  // these are one layer, which runs as many times
  std::optional<MambaShape> mamba = {};
  std::string pattern = {};              // of a hybrid: the kinds of its layers
  std::string predictor_pattern = {};    // likewise, of what predicts one further token
  std::optional<DeltaShape> delta = {};  // of all layers but every nth, by `full_every`
  bool query_gate = false;               // each head's output has a gate, computed with its queries
  bool qkv_biases = false;               // of queries, keys and values
  bool output_bias = false;              // of the projection after attention
  bool sinks = false;                    // a score per head that every softmax includes
  bool norms_outputs = false;            // a second norm after each part of a block
  bool has_no_positions = false;         // attention has no rotary positions

  // The layers of what predicts a further token have the numbers from `layers` on.
  std::int64_t predictor_layers() const {
    return predictor_pattern.empty() ? 1 : static_cast<std::int64_t>(predictor_pattern.size());
  }
  LayerKind kind(std::int64_t layer) const {
    if (layer >= layers && !predictor_pattern.empty()) {
      return static_cast<LayerKind>(predictor_pattern[static_cast<std::size_t>(layer - layers)]);
    }
    return pattern.empty() ? LayerKind::kBlock
                           : static_cast<LayerKind>(pattern[static_cast<std::size_t>(layer)]);
  }
  bool has_experts(std::int64_t layer) const {
    if (!pattern.empty()) return kind(layer) == LayerKind::kExperts;
    // A predictor is like the last layer.
    const std::int64_t number = std::min(layer, layers - 1) + 1;
    return experts && number > experts->dense_layers &&
           (number - experts->dense_layers) % experts->every == 0;
  }
  bool has_delta(std::int64_t layer) const { return delta && !attends_to_all(layer); }
  // The tokens that a layer's attention reaches back; 0: all.
  std::int64_t window_of(std::int64_t layer) const { return attends_to_all(layer) ? 0 : window; }
  // By `full_every`. A predictor is like the last layer.
  bool attends_to_all(std::int64_t layer) const {
    return full_every > 0 && std::min(layer + 1, layers) % full_every == 0;
  }
  friend bool operator==(const ModelShape&, const ModelShape&) = default;
};

// Refuses sizes below 1 and sizes that cannot be combined. Errors: kInvalidArgument.
Status CheckShape(const ModelShape& shape);

}  // namespace penstock
