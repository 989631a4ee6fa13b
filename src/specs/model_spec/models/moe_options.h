// Decoders with experts: Mixtral, Qwen3-MoE and DeepSeek.
#pragma once

#include "model_spec/models/decoder_options.h"

namespace penstock {

struct MoeOptions : DecoderOptions {
  ExpertOptions moe;

  std::vector<Field> Fields() override;
  void Resolve(const ModelConfig& config) override;
  Status Check(const ModelConfig& config) const override;
  const ExpertOptions* Experts() const override { return &moe; }
};

// Sets model.balance_loss to router_aux_loss_coef * top_k / layers with experts. The transformers
// package multiplies the coefficient by a term that is top_k for a balanced load of the whole
// model. Ours is 1, and each layer adds its own.
void FromRouterAuxLoss(ModelConfig& config);
// Returns router_aux_loss_coef.
double RouterAuxLossOf(const ModelConfig& config, const ExpertOptions& options);

// DecoderNames(), and the names of experts and routers in Qwen and DeepSeek.
std::vector<HuggingFaceTensor> MoeNames();

// DecoderSpec with what models with experts have in common.
template <class Options>
ModelSpec MoeSpec() {
  ModelSpec model = DecoderSpec<Options>();
  model.is_per_expert = [](std::string_view parameter) {
    return parameter.find(".experts.") != std::string_view::npos;
  };
  model.experts = [](const ModelConfig& config) {
    return DecoderOptionsOf(config)->Experts()->experts;
  };
  model.huggingface.names = MoeNames();
  return model;
}

}  // namespace penstock
