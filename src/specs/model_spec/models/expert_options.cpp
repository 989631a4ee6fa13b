#include "model_spec/models/expert_options.h"

namespace penstock {

std::vector<Field> ExpertOptions::Fields() {
  return {
      {"experts", &experts, Changes::kModel, "Experts per layer", kModelSize,
       "num_experts n_routed_experts num_local_experts num_moe_experts"},
      {"top_k", &top_k, Changes::kModel, "Experts per token", kModelSize,
       "num_experts_per_tok moe_router_topk"},
      {"expert_hidden", &hidden, Changes::kModel,
       "Width of an expert (auto: the width of a dense layer)", kAutomaticModelSize,
       "moe_intermediate_size moe_ffn_hidden_size moe_hidden_dim"},
      {"shared_experts", &shared, Changes::kModel, "Experts that process every token", kModelCount,
       "n_shared_experts num_shared_experts"},
      {"dense_layers", &dense_layers, Changes::kModel, "First layers that are dense", kModelCount,
       "first_k_dense_replace n_dense_layers"},
      {"router_score", &score, Changes::kModel, "Scores of experts", OneOf("softmax sigmoid"),
       "scoring_func score_func moe_router_score_function"},
      {"normalize_top_k", &normalize, Changes::kModel,
       "Scale the weights of a token's experts to a sum of 1", kFromZero,
       "norm_topk_prob route_norm"},
      {"router_scale", &scale, Changes::kModel, "Factor of the weights of a token's experts",
       kFromZero, "routed_scaling_factor route_scale"},
      {"expert_groups", &groups, Changes::kModel, "Equal groups of experts", kModelSize,
       "n_group n_expert_groups"},
      {"top_groups", &top_groups, Changes::kModel, "Groups of experts per token", kModelSize,
       "topk_group n_limited_groups"},
      {"balance", &balance, Changes::kModel,
       "Balance tokens over experts by a term of the loss, or by a bias of the choice",
       OneOf("none loss bias"), "moe_router_load_balancing_type"},
      {"balance_loss", &balance_loss, Changes::kPrograms,
       "Factor of the loss term, which is 1 if all experts have equally many tokens", kFromZero,
       "aux_loss_alpha router_aux_loss_coef moe_aux_loss_coeff"},
  };
}

Status ExpertOptions::Check() const {
  if (experts % groups != 0) {
    return InvalidParameter("model.expert_groups", "{} does not divide `model.experts` {}", groups,
                            experts);
  }
  if (top_groups > groups) {
    return InvalidParameter("model.top_groups", "{} is more than `model.expert_groups` {}",
                            top_groups, groups);
  }
  const std::int64_t candidates = experts / groups * top_groups;
  if (top_k > candidates) {
    return InvalidParameter("model.top_k", "{} is more than the {} experts that a token can choose",
                            top_k, candidates);
  }
  if (groups > 1 && score == "sigmoid" && experts / groups < 2) {
    return InvalidParameter("model.expert_groups",
                            "{}: with sigmoid, a group needs 2 or more experts", groups);
  }
  return {};
}

}  // namespace penstock
