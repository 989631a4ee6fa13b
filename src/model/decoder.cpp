#include "model/decoder.h"

#include <ATen/ops/dropout.h>
#include <ATen/ops/linear.h>

#include <utility>

#include "model/init.h"

namespace penstock {
namespace {

class DecoderBlock : public torch::nn::Module {
 public:
  DecoderBlock(std::int64_t dim, const DecoderOptions& options)
      : dropout_(options.dropout),
        attention_norm_(Norm("attention_norm", dim, options)),
        attention_(*this, options.AttentionOf(dim)),
        feed_forward_norm_(Norm("ffn_norm", dim, options)),
        feed_forward_(*this, dim, options.HiddenOf(dim)) {}

  torch::Tensor forward(const torch::Tensor& input, const RotaryTable& rotary,
                        SequenceContext& context) {
    const torch::Tensor middle =
        input + Dropped(attention_(attention_norm_->forward(input), rotary, context));
    return middle + Dropped(feed_forward_(feed_forward_norm_->forward(middle)));
  }

 private:
  std::shared_ptr<RmsNorm> Norm(const char* name, std::int64_t dim, const DecoderOptions& options) {
    return register_module(name, std::make_shared<RmsNorm>(dim, options.norm_epsilon));
  }

  torch::Tensor Dropped(const torch::Tensor& branch) {
    return at::dropout(branch, dropout_, is_training());
  }

  double dropout_;
  std::shared_ptr<RmsNorm> attention_norm_;
  Attention attention_;
  std::shared_ptr<RmsNorm> feed_forward_norm_;
  SwiGlu feed_forward_;
};

class DecoderStage : public StageModule {
 public:
  DecoderStage(const ModelConfig& config, const DecoderOptions& options, const LayerRange& range)
      : rotary_(RotaryTable::Make(config.sequence, options.AttentionOf(config.dim).head_dim,
                                  options.rope_theta, options.rope)),
        is_first_(range.embedding) {
    register_buffer("rotary_cos", rotary_.cos);
    register_buffer("rotary_sin", rotary_.sin);
    // A tied last stage has a copy of the embedding under the same name.
    if (range.embedding || (range.head && options.tied)) {
      embedding_ =
          register_module("embedding", std::make_shared<Embedding>(config.vocabulary, config.dim));
    }
    blocks_ = RegisterLayers<DecoderBlock>(*this, range, config.dim, options);
    if (!range.head) return;
    norm_ = register_module("norm", std::make_shared<RmsNorm>(config.dim, options.norm_epsilon));
    if (options.tied) return;
    head_ = register_module("head", std::make_shared<Projection>(config.dim, config.vocabulary));
  }

  torch::Tensor forward(torch::Tensor input) override {
    SequenceContext whole;
    return ForwardSlice(std::move(input), whole);
  }

  torch::Tensor ForwardSlice(torch::Tensor input, SequenceContext& context) override {
    torch::Tensor hidden = is_first_ ? embedding_->forward(input) : std::move(input);
    for (const auto& block : blocks_) hidden = block->forward(hidden, rotary_, context);
    if (!norm_) return hidden;
    hidden = norm_->forward(hidden);
    return head_ ? head_->forward(hidden) : at::linear(hidden, embedding_->weight());
  }

 private:
  RotaryTable rotary_;
  bool is_first_;
  std::shared_ptr<Embedding> embedding_;
  std::vector<std::shared_ptr<DecoderBlock>> blocks_;
  std::shared_ptr<RmsNorm> norm_;
  std::shared_ptr<Projection> head_;  // null if tied
};

Status CheckDecoder(const ModelConfig& config, const DecoderOptions& options) {
  const AttentionSizes sizes = options.AttentionOf(config.dim);
  if (options.head_dim == 0 && config.dim % options.heads != 0) {
    return InvalidArgument("model.dim {} over {} heads: each head needs an even, whole share",
                           config.dim, options.heads);
  }
  if (sizes.head_dim % 2 != 0) {
    return InvalidArgument("model.head_dim {}: rotary positions need an even size of each head",
                           sizes.head_dim);
  }
  if (options.heads % sizes.kv_heads != 0) {
    return InvalidArgument("model.kv_heads {} does not divide model.heads {}", options.kv_heads,
                           options.heads);
  }
  if (options.rope.type == "llama3" &&
      options.rope.low_frequency_factor >= options.rope.high_frequency_factor) {
    return InvalidArgument(
        "model.rope_low_frequency_factor {} is not below model.rope_high_frequency_factor {}",
        options.rope.low_frequency_factor, options.rope.high_frequency_factor);
  }
  return {};
}

bool HoldsEmbedding(const LayerRange& range) { return range.embedding || range.head; }

}  // namespace

std::vector<Field> DecoderOptions::Fields() {
  return {
      {"heads",
       &heads,
       Changes::kModel,
       "Attention heads",
       {.least = 1, .most = kMostModelSize},
       "n_heads n_head num_heads num_attention_heads"},
      {"kv_heads",
       &kv_heads,
       Changes::kModel,
       "Key and value heads, shared evenly by the query heads (auto: one per query head)",
       {.most = kMostModelSize, .automatic = true},
       "n_kv_heads num_key_value_heads num_query_groups"},
      {"head_dim",
       &head_dim,
       Changes::kModel,
       "Size of each head (auto: dim / heads)",
       {.most = kMostModelSize, .automatic = true},
       "kv_channels"},
      {"hidden",
       &hidden,
       Changes::kModel,
       "Width of the feed-forward layer (auto: 8/3 dim, rounded up to a multiple of 32)",
       {.most = kMostModelSize, .automatic = true},
       "hidden_dim intermediate_size ffn_hidden_size"},
      {"rope_theta",
       &rope_theta,
       Changes::kModel,
       "Base of the rotary position embedding",
       {.least = 1},
       "rotary_base"},
      {"rope_scaling",
       &rope.type,
       Changes::kModel,
       "Scaling of the rotary frequencies for long sequences",
       {.choices = "none linear llama3"},
       "rope_type"},
      {"rope_factor", &rope.factor, Changes::kModel, "Divisor of scaled frequencies", {.least = 1}},
      {"rope_low_frequency_factor",
       &rope.low_frequency_factor,
       Changes::kModel,
       "With llama3: frequencies of fewer periods than this are scaled",
       {},
       "low_freq_factor"},
      {"rope_high_frequency_factor",
       &rope.high_frequency_factor,
       Changes::kModel,
       "With llama3: frequencies of more periods than this are not",
       {},
       "high_freq_factor"},
      {"rope_original_sequence",
       &rope.original_sequence,
       Changes::kModel,
       "With llama3: the tokens over which periods count",
       {.least = 1, .most = kMostModelSize},
       "original_max_position_embeddings"},
      {"norm_epsilon",
       &norm_epsilon,
       Changes::kModel,
       "Added to the mean square in RMSNorm",
       {},
       "norm_eps rms_norm_eps"},
      {"dropout",
       &dropout,
       Changes::kPrograms,
       "Dropout probability of each residual branch",
       {.most = 0.99},
       "resid_pdrop hidden_dropout"},
      {"tied",
       &tied,
       Changes::kModel,
       "Use the token embedding as the head, too",
       {},
       "tie_word_embeddings enable_weight_tying tie_embeddings weight_tying"},
  };
}

ModelEntry MakeDecoderEntry(
    std::function<std::unique_ptr<ModelOptions>()> options,
    const std::function<std::unique_ptr<DecoderOptions>(const ModelConfig& config)>& read) {
  ModelEntry model;
  model.options = std::move(options);
  model.check = [read](const ModelConfig& config) { return CheckDecoder(config, *read(config)); };
  model.build = [read](const ModelConfig& config, const LayerRange& range) {
    return std::make_shared<DecoderStage>(config, *read(config), range);
  };
  model.initialize = InitializeTransformer;
  model.shared = [read](const ModelConfig& config) -> std::vector<SharedDeclaration> {
    if (!read(config)->tied) return {};
    return {{"embedding.weight", HoldsEmbedding, "model.tied=false"}};
  };
  model.layers_alike = true;
  model.huggingface.names = DecoderNames();
  model.huggingface.write = [read](const ModelConfig& config, nlohmann::ordered_json& root) {
    WriteDecoderConfig(config, *read(config), root);
  };
  return model;
}

}  // namespace penstock
