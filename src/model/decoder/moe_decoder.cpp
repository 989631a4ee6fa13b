#include "model/decoder/moe_decoder.h"

#include <iterator>

namespace penstock {

std::vector<Field> MoeOptions::Fields() {
  std::vector<Field> fields = DecoderOptions::Fields();
  std::ranges::move(moe.Fields(), std::back_inserter(fields));
  return fields;
}

void MoeOptions::Resolve(const ModelConfig& config) {
  DecoderOptions::Resolve(config);
  moe.hidden = ExpertHiddenOf(config.dim);
  if (moe.dense_layers == 0) hidden = moe.hidden;   // no layer has it
  if (moe.balance == "loss") moe.balance = "none";  // only training adds the term
}

Status MoeOptions::Check(const ModelConfig& config) const {
  PENSTOCK_TRY_STATUS(moe.Check());
  return DecoderOptions::Check(config);
}

std::unique_ptr<FeedForward> MoeOptions::MakeFeedForward(torch::nn::Module& block,
                                                         std::int64_t layer, std::int64_t dim,
                                                         const LayerRange& range) const {
  if (layer < moe.dense_layers) return DecoderOptions::MakeFeedForward(block, layer, dim, range);
  return std::make_unique<ExpertLayer>(block, dim, ExpertHiddenOf(dim), moe, range.expert_ranks);
}

std::vector<HuggingFaceTensor> MoeNames() {
  std::vector<HuggingFaceTensor> names = DecoderNames();
  constexpr auto kPerExpert = TensorLayout::kPerExpert;
  names.insert(
      names.end(),
      {{"layers.N.router.weight", "model.layers.N.mlp.gate.weight"},
       {"layers.N.router.bias", "model.layers.N.mlp.gate.e_score_correction_bias"},
       {"layers.N.experts.w1.weight", "model.layers.N.mlp.experts.E.gate_proj.weight", kPerExpert},
       {"layers.N.experts.w2.weight", "model.layers.N.mlp.experts.E.down_proj.weight", kPerExpert},
       {"layers.N.experts.w3.weight", "model.layers.N.mlp.experts.E.up_proj.weight", kPerExpert},
       {"layers.N.shared.w1.weight", "model.layers.N.mlp.shared_experts.gate_proj.weight"},
       {"layers.N.shared.w2.weight", "model.layers.N.mlp.shared_experts.down_proj.weight"},
       {"layers.N.shared.w3.weight", "model.layers.N.mlp.shared_experts.up_proj.weight"}});
  return names;
}

}  // namespace penstock
