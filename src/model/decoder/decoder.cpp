#include "model/decoder/decoder.h"

#include <ATen/ops/dropout.h>
#include <ATen/ops/linear.h>

#include <utility>

#include "model/init.h"

namespace penstock {
namespace {

class DecoderBlock : public torch::nn::Module {
 public:
  DecoderBlock(std::int64_t layer, std::int64_t dim, const DecoderOptions& options,
               const LayerRange& range)
      : dropout_(options.dropout),
        attention_norm_(Norm("attention_norm", dim, options)),
        attention_(options.MakeAttention(*this, dim)),
        feed_forward_norm_(Norm("ffn_norm", dim, options)),
        feed_forward_(options.MakeFeedForward(*this, layer, dim, range)) {}

  torch::Tensor forward(const torch::Tensor& input, const RotaryTable& rotary,
                        SequenceContext& context) {
    const torch::Tensor middle =
        input + Dropped(attention_->Attend(attention_norm_->forward(input), rotary, context));
    return middle + Dropped(feed_forward_->Run(feed_forward_norm_->forward(middle)));
  }
  void SetLossGradient(double gradient) { feed_forward_->SetLossGradient(gradient); }

 private:
  std::shared_ptr<RmsNorm> Norm(const char* name, std::int64_t dim, const DecoderOptions& options) {
    return register_module(name, std::make_shared<RmsNorm>(dim, options.norm_epsilon));
  }

  torch::Tensor Dropped(const torch::Tensor& branch) {
    return at::dropout(branch, dropout_, is_training());
  }

  double dropout_;
  std::shared_ptr<RmsNorm> attention_norm_;
  std::unique_ptr<AttentionLayer> attention_;
  std::shared_ptr<RmsNorm> feed_forward_norm_;
  std::unique_ptr<FeedForward> feed_forward_;
};

class DecoderStage : public StageModule {
 public:
  DecoderStage(const ModelConfig& config, const DecoderOptions& options, const LayerRange& range)
      : rotary_(options.MakeRotary(config)), is_first_(range.embedding) {
    register_buffer("rotary_cos", rotary_.cos);
    register_buffer("rotary_sin", rotary_.sin);
    // A tied last stage has a copy of the embedding under the same name.
    if (range.embedding || (range.head && options.tied)) {
      embedding_ =
          register_module("embedding", std::make_shared<Embedding>(config.vocabulary, config.dim));
    }
    blocks_ = RegisterEachLayer(*this, range, [&](std::int64_t layer) {
      return std::make_shared<DecoderBlock>(layer, config.dim, options, range);
    });
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

  void SetLossGradient(double gradient) override {
    for (const auto& block : blocks_) block->SetLossGradient(gradient);
  }

 private:
  RotaryTable rotary_;
  bool is_first_;
  std::shared_ptr<Embedding> embedding_;
  std::vector<std::shared_ptr<DecoderBlock>> blocks_;
  std::shared_ptr<RmsNorm> norm_;
  std::shared_ptr<Projection> head_;  // null if tied
};

bool HoldsEmbedding(const LayerRange& range) { return range.embedding || range.head; }

}  // namespace

std::unique_ptr<AttentionLayer> DecoderOptions::MakeAttention(torch::nn::Module& block,
                                                              std::int64_t dim) const {
  return std::make_unique<Attention>(block, AttentionOf(dim));
}

std::unique_ptr<FeedForward> DecoderOptions::MakeFeedForward(torch::nn::Module& block, std::int64_t,
                                                             std::int64_t dim,
                                                             const LayerRange&) const {
  return std::make_unique<SwiGlu>(block, dim, HiddenOf(dim));
}

RotaryTable DecoderOptions::MakeRotary(const ModelConfig& config) const {
  return RotaryTable::Make(config.sequence, AttentionOf(config.dim).head_dim, rope_theta, rope);
}

Status DecoderOptions::Check(const ModelConfig& config) const {
  const AttentionSizes sizes = AttentionOf(config.dim);
  if (head_dim == 0 && config.dim % heads != 0) {
    return InvalidArgument("model.dim {} over {} heads: each head needs an even, whole share",
                           config.dim, heads);
  }
  if (sizes.head_dim % 2 != 0) {
    return InvalidArgument("model.head_dim {}: rotary positions need an even size of each head",
                           sizes.head_dim);
  }
  if (heads % sizes.kv_heads != 0) {
    return InvalidArgument("model.kv_heads {} does not divide model.heads {}", kv_heads, heads);
  }
  return rope.Check();
}

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
       {.choices = "none linear llama3 yarn"},
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
       "With llama3 or yarn: the tokens over which periods count",
       {.least = 1, .most = kMostModelSize},
       "original_max_position_embeddings"},
      {"rope_fast_turns",
       &rope.fast_turns,
       Changes::kModel,
       "With yarn: frequencies of more turns than this are not scaled",
       {},
       "beta_fast"},
      {"rope_slow_turns",
       &rope.slow_turns,
       Changes::kModel,
       "With yarn: frequencies of fewer turns than this are scaled",
       {},
       "beta_slow"},
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
  model.check = [read](const ModelConfig& config) { return read(config)->Check(config); };
  model.build = [read](const ModelConfig& config, const LayerRange& range) {
    return std::make_shared<DecoderStage>(config, *read(config), range);
  };
  model.initialize = InitializeTransformer;
  model.shared = [read](const ModelConfig& config) -> std::vector<SharedDeclaration> {
    if (!read(config)->tied) return {};
    return {{"embedding.weight", HoldsEmbedding, "model.tied=false"}};
  };
  model.first_alike_layer = [read](const ModelConfig& config) {
    return read(config)->FirstAlikeLayer();
  };
  model.huggingface.names = DecoderNames();
  model.huggingface.write = [read](const ModelConfig& config, nlohmann::ordered_json& root) {
    WriteDecoderConfig(config, *read(config), root);
  };
  return model;
}

}  // namespace penstock
