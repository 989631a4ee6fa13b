// Options of GPT-2.
#pragma once

#include <vector>

#include "model_spec/model_config.h"

namespace penstock {

struct Gpt2Options : ModelOptions {
  std::int64_t heads = 4;
  std::int64_t hidden = 0;
  double norm_epsilon = 1e-5;
  double dropout = 0;
  bool tied = true;

  void Resolve(const ModelConfig& config) override { hidden = HiddenOf(config.dim); }
  std::vector<Field> Fields() override {
    return {
        {"heads", &heads, Changes::kModel, "Attention heads", kModelSize,
         "n_heads n_head num_heads num_attention_heads"},
        {"hidden", &hidden, Changes::kModel, "Width of the feed-forward layer (auto: 4 dim)",
         kAutomaticModelSize, "n_inner hidden_dim intermediate_size ffn_hidden_size"},
        {"norm_epsilon", &norm_epsilon, Changes::kModel, "Added to the variance in LayerNorm",
         kFromZero, "norm_eps layer_norm_epsilon layernorm_epsilon"},
        {"dropout",
         &dropout,
         Changes::kPrograms,
         "Dropout probability of the embedding and of each residual branch",
         {.most = 0.99},
         "resid_pdrop embd_pdrop hidden_dropout"},
        {"tied", &tied, Changes::kModel, "Use the token embedding as the head, too", kFromZero,
         "tie_word_embeddings enable_weight_tying tie_embeddings weight_tying"},
    };
  }

  std::int64_t HiddenOf(std::int64_t dim) const { return hidden > 0 ? hidden : 4 * dim; }
};

}  // namespace penstock
