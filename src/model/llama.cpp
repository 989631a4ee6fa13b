// Llama (Touvron et al. 2023, section 2.2): pre-norm blocks of rotary attention and SwiGLU with
// RMSNorm. The head is not tied to the embedding.
#include <ATen/ops/dropout.h>

#include "model/init.h"
#include "model/layers.h"
#include "model/model_entry.h"

namespace penstock {
namespace {

struct LlamaOptions : ModelOptions {
  std::int64_t heads = 4;
  std::int64_t kv_heads = 0;
  std::int64_t hidden = 0;
  double rope_theta = 10000;
  double norm_epsilon = 1e-5;
  double dropout = 0;

  std::vector<Field> Fields() override {
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
    };
  }

  // 8/3 dim, so that three matrices have as many parameters as two of 4 dim; rounded up to a
  // multiple of 32, for which matrix kernels are fast.
  std::int64_t HiddenOf(std::int64_t dim) const {
    return hidden > 0 ? hidden : (8 * dim / 3 + 31) / 32 * 32;
  }
  std::int64_t KvHeads() const { return kv_heads > 0 ? kv_heads : heads; }
};

class LlamaBlock : public torch::nn::Module {
 public:
  LlamaBlock(std::int64_t dim, const LlamaOptions& options)
      : dropout_(options.dropout),
        attention_norm_(Norm("attention_norm", dim, options)),
        attention_(*this, {dim, options.heads, options.KvHeads()}),
        feed_forward_norm_(Norm("ffn_norm", dim, options)),
        feed_forward_(*this, dim, options.HiddenOf(dim)) {}

  torch::Tensor forward(const torch::Tensor& input, const RotaryTable& rotary,
                        SequenceContext& context) {
    const torch::Tensor middle =
        input + Dropped(attention_(attention_norm_->forward(input), rotary, context));
    return middle + Dropped(feed_forward_(feed_forward_norm_->forward(middle)));
  }

 private:
  std::shared_ptr<RmsNorm> Norm(const char* name, std::int64_t dim, const LlamaOptions& options) {
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

class LlamaStage : public StageModule {
 public:
  LlamaStage(const ModelConfig& config, const LlamaOptions& options, const LayerRange& range)
      : rotary_(
            RotaryTable::Make(config.sequence, config.dim / options.heads, options.rope_theta)) {
    register_buffer("rotary_cos", rotary_.cos);
    register_buffer("rotary_sin", rotary_.sin);
    if (range.embedding) {
      embedding_ =
          register_module("embedding", std::make_shared<Embedding>(config.vocabulary, config.dim));
    }
    blocks_ = RegisterLayers<LlamaBlock>(*this, range, config.dim, options);
    if (range.head) {
      norm_ = register_module("norm", std::make_shared<RmsNorm>(config.dim, options.norm_epsilon));
      head_ = register_module("head", std::make_shared<Projection>(config.dim, config.vocabulary));
    }
  }

  torch::Tensor forward(torch::Tensor input) override {
    SequenceContext whole;
    return ForwardSlice(std::move(input), whole);
  }

  torch::Tensor ForwardSlice(torch::Tensor input, SequenceContext& context) override {
    torch::Tensor hidden = embedding_ ? embedding_->forward(input) : std::move(input);
    for (const auto& block : blocks_) hidden = block->forward(hidden, rotary_, context);
    return head_ ? head_->forward(norm_->forward(hidden)) : hidden;
  }

 private:
  RotaryTable rotary_;
  std::shared_ptr<Embedding> embedding_;
  std::vector<std::shared_ptr<LlamaBlock>> blocks_;
  std::shared_ptr<RmsNorm> norm_;
  std::shared_ptr<Projection> head_;
};

Status CheckLlama(const ModelConfig& config) {
  const auto options = OptionsOf<LlamaOptions>(config);
  if (config.dim % options.heads != 0 || config.dim / options.heads % 2 != 0) {
    return InvalidArgument("model.dim {} over {} heads: each head needs an even, whole share",
                           config.dim, options.heads);
  }
  if (options.heads % options.KvHeads() != 0) {
    return InvalidArgument("model.kv_heads {} does not divide model.heads {}", options.kv_heads,
                           options.heads);
  }
  return {};
}

std::shared_ptr<StageModule> BuildLlama(const ModelConfig& config, const LayerRange& range) {
  return std::make_shared<LlamaStage>(config, OptionsOf<LlamaOptions>(config), range);
}

}  // namespace

ModelEntry Llama() {
  ModelEntry model;
  model.name = "llama";
  model.summary = "rotary positions, RMSNorm, SwiGLU, grouped key and value heads";
  model.options = MakeOptions<LlamaOptions>;
  model.check = CheckLlama;
  model.build = BuildLlama;
  model.initialize = InitializeTransformer;
  model.layers_alike = true;
  return model;
}

}  // namespace penstock
