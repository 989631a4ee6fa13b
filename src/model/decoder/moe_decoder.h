// Decoders with experts: Mixtral, Qwen3-MoE and DeepSeek.
#pragma once

#include "model/decoder/decoder.h"
#include "model/decoder/experts.h"

namespace penstock {

struct MoeOptions : DecoderOptions {
  ExpertOptions moe;

  std::vector<Field> Fields() override;
  void Resolve(const ModelConfig& config) override;
  Status Check(const ModelConfig& config) const override;
  std::unique_ptr<FeedForward> MakeFeedForward(torch::nn::Module& block, std::int64_t layer,
                                               std::int64_t dim,
                                               const LayerRange& range) const override;
  std::int64_t FirstAlikeLayer() const override { return moe.dense_layers; }

  std::int64_t ExpertHiddenOf(std::int64_t dim) const {
    return moe.hidden > 0 ? moe.hidden : HiddenOf(dim);
  }
};

// Converts model.balance_loss from router_aux_loss_coef, of which it is this share: top_k / layers
// with experts. The transformers package multiplies the coefficient by a term that is top_k for a
// balanced load of the whole model. Ours is 1, and each layer adds its own.
void FromRouterAuxLoss(ModelConfig& config);
// Returns router_aux_loss_coef.
double RouterAuxLossOf(const ModelConfig& config, const ExpertOptions& options);

// DecoderNames(), and the names of experts and routers in Qwen and DeepSeek.
std::vector<HuggingFaceTensor> MoeNames();

// DecoderEntry with what models with experts have in common.
template <class Options>
ModelEntry MoeEntry() {
  ModelEntry model = DecoderEntry<Options>();
  model.is_per_expert = [](std::string_view parameter) {
    return parameter.find(".experts.") != std::string_view::npos;
  };
  model.experts = [](const ModelConfig& config) { return OptionsOf<Options>(config).moe.experts; };
  model.huggingface.names = MoeNames();
  return model;
}

}  // namespace penstock
