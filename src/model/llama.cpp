// Llama: pre-normalised blocks of rotary attention and SwiGLU, an untied head (Touvron et al. 2023,
// section 2.2).
#include <ATen/ops/dropout.h>

#include "model/layers.h"
#include "model/table.h"

namespace penstock {
namespace {

// Two thirds of four times dim, so that the three matrices hold as much as the usual two; rounded
// up to a multiple of 32, which matrix kernels like.
std::int64_t HiddenOf(const ModelConfig& config) {
  if (config.hidden > 0) return config.hidden;
  return (8 * config.dim / 3 + 31) / 32 * 32;
}

std::int64_t KvHeadsOf(const ModelConfig& config) {
  return config.kv_heads > 0 ? config.kv_heads : config.heads;
}

class Block : public torch::nn::Module {
 public:
  explicit Block(const ModelConfig& config)
      : dropout_(config.dropout),
        attention_norm_(Norm("attention_norm", config)),
        attention_(*this, {config.dim, config.heads, KvHeadsOf(config)}),
        feed_forward_norm_(Norm("ffn_norm", config)),
        feed_forward_(*this, config.dim, HiddenOf(config)) {}

  torch::Tensor forward(const torch::Tensor& input, const RotaryTable& rotary,
                        SequenceContext& context) {
    const torch::Tensor middle =
        input + Dropped(attention_(attention_norm_->forward(input), rotary, context));
    return middle + Dropped(feed_forward_(feed_forward_norm_->forward(middle)));
  }

 private:
  std::shared_ptr<RmsNorm> Norm(const char* name, const ModelConfig& config) {
    return register_module(name, std::make_shared<RmsNorm>(config.dim, config.norm_epsilon));
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
  LlamaStage(const ModelConfig& config, const LayerRange& range)
      : rotary_(RotaryTable::Make(config.sequence, config.dim / config.heads, config.rope_theta)) {
    register_buffer("rotary_cos", rotary_.cos);
    register_buffer("rotary_sin", rotary_.sin);
    if (range.embedding) {
      embedding_ =
          register_module("embedding", std::make_shared<Embedding>(config.vocabulary, config.dim));
    }
    const auto layers = register_module("layers", std::make_shared<torch::nn::Module>());
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      blocks_.push_back(
          layers->register_module(std::to_string(i), std::make_shared<Block>(config)));
    }
    if (range.head) {
      norm_ = register_module("norm", std::make_shared<RmsNorm>(config.dim, config.norm_epsilon));
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
  std::vector<std::shared_ptr<Block>> blocks_;
  std::shared_ptr<RmsNorm> norm_;
  std::shared_ptr<Projection> head_;
};

Status Check(const ModelConfig& config) {
  if (config.dim % config.heads != 0 || config.dim / config.heads % 2 != 0) {
    return InvalidArgument("model.dim {} over {} heads: each head needs an even, whole share",
                           config.dim, config.heads);
  }
  if (config.heads % KvHeadsOf(config) != 0) {
    return InvalidArgument("model.kv_heads {} does not divide model.heads {}", config.kv_heads,
                           config.heads);
  }
  return {};
}

std::shared_ptr<StageModule> Build(const ModelConfig& config, const LayerRange& range) {
  return std::make_shared<LlamaStage>(config, range);
}

}  // namespace

const ModelEntry kLlama = {"llama", Check, Build, /*layers_alike=*/true};

}  // namespace penstock
