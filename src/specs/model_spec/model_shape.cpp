#include "model_spec/model_shape.h"

#include <utility>

namespace penstock {
namespace {

Status CheckSize(std::string_view what, std::int64_t size) {
  if (size >= 1 && size <= kMostShapeSize) return {};
  return InvalidArgument("{} {}: a whole number from 1 to {} is needed", what, size,
                         kMostShapeSize);
}

Status CheckLatent(const LatentShape& latent) {
  PENSTOCK_TRY_STATUS(CheckSize("kv_lora_rank", latent.kv_rank));
  PENSTOCK_TRY_STATUS(CheckSize("qk_nope_head_dim", latent.plain_dim));
  PENSTOCK_TRY_STATUS(CheckSize("qk_rope_head_dim", latent.rotary_dim));
  PENSTOCK_TRY_STATUS(CheckSize("v_head_dim", latent.value_dim));
  if (latent.query_rank != 0) PENSTOCK_TRY_STATUS(CheckSize("q_lora_rank", latent.query_rank));
  if (latent.value_dim <= latent.query_dim()) return {};
  return InvalidArgument("v_head_dim {} is more than qk_nope_head_dim and qk_rope_head_dim {}",
                         latent.value_dim, latent.query_dim());
}

Status CheckExperts(const ExpertShape& experts) {
  PENSTOCK_TRY_STATUS(CheckSize("the number of experts", experts.experts));
  PENSTOCK_TRY_STATUS(CheckSize("num_experts_per_tok", experts.top_k));
  PENSTOCK_TRY_STATUS(CheckSize("the width of an expert", experts.hidden));
  if (experts.shared != 0) PENSTOCK_TRY_STATUS(CheckSize("n_shared_experts", experts.shared));
  if (experts.dense_layers != 0) {
    PENSTOCK_TRY_STATUS(CheckSize("first_k_dense_replace", experts.dense_layers));
  }
  PENSTOCK_TRY_STATUS(CheckSize("experts_every", experts.every));
  if (experts.top_k <= experts.experts) return {};
  return InvalidArgument("num_experts_per_tok {} is more than the {} experts", experts.top_k,
                         experts.experts);
}

Status CheckPattern(const ModelShape& shape) {
  if (shape.pattern.empty()) return {};
  if (std::ssize(shape.pattern) != shape.layers) {
    return InvalidArgument("pattern: {} letters, but the model has {} layers", shape.pattern.size(),
                           shape.layers);
  }
  for (const LayerKind kind : {LayerKind::kMamba, LayerKind::kExperts}) {
    const bool has =
        kind == LayerKind::kMamba ? shape.mamba.has_value() : shape.experts.has_value();
    if (has || shape.pattern.find(static_cast<char>(kind)) == std::string::npos) continue;
    return InvalidArgument("layers {}: the model has no sizes for them", static_cast<char>(kind));
  }
  return {};
}

}  // namespace

Status CheckShape(const ModelShape& shape) {
  const std::pair<std::string_view, std::int64_t> sizes[] = {
      {"the vocabulary", shape.vocabulary},
      {"the size of hidden states", shape.dim},
      {"the number of layers", shape.layers},
      {"the number of heads", shape.heads},
      {"the width of a layer", shape.hidden}};
  for (const auto& [what, size] : sizes) PENSTOCK_TRY_STATUS(CheckSize(what, size));
  if (shape.experts) PENSTOCK_TRY_STATUS(CheckExperts(*shape.experts));
  PENSTOCK_TRY_STATUS(CheckPattern(shape));
  if (shape.architecture == Architecture::kGpt2) {
    PENSTOCK_TRY_STATUS(CheckSize("the number of positions", shape.positions));
  }
  if (shape.latent) return CheckLatent(*shape.latent);
  PENSTOCK_TRY_STATUS(CheckSize("the number of key and value heads", shape.kv_heads));
  PENSTOCK_TRY_STATUS(CheckSize("the size of a head", shape.head_dim));
  if (shape.heads % shape.kv_heads == 0) return {};
  return InvalidArgument("{} heads cannot share {} heads of keys and values", shape.heads,
                         shape.kv_heads);
}

}  // namespace penstock
