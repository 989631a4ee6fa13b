// DeepSeek-V2 and V3 (DeepSeek-AI, 2024): multi-head latent attention, and experts, some of them
// shared, in all but the first layers. V3 chooses experts by sigmoid scores with a bias.
#include <algorithm>
#include <optional>

#include "model_spec/models/moe_options.h"

namespace penstock {
namespace {

struct DeepseekOptions : MoeOptions {
  std::int64_t query_rank = 0;
  std::int64_t kv_rank = 0;
  std::int64_t plain_dim = 0;
  std::int64_t rotary_dim = 0;
  std::int64_t value_dim = 0;

  DeepseekOptions() {
    norm_epsilon = 1e-6;
    moe.shared = 1;
    moe.dense_layers = 1;
    moe.normalize = false;
    moe.balance = "loss";
  }

  std::vector<Field> Fields() override;
  void Resolve(const ModelConfig& config) override;
  Status Check(const ModelConfig& config) const override;
  std::optional<LatentShape> Latent(std::int64_t dim) const override { return LatentOf(dim); }

  LatentShape LatentOf(std::int64_t dim) const {
    const std::int64_t share = std::max<std::int64_t>(dim / heads, 1);
    return {query_rank, kv_rank > 0 ? kv_rank : std::max<std::int64_t>(dim / 4, 1),
            plain_dim > 0 ? plain_dim : share,
            rotary_dim > 0 ? rotary_dim : std::max<std::int64_t>(share / 4 * 2, 2),
            value_dim > 0 ? value_dim : share};
  }
};

struct DeepseekV3Options : DeepseekOptions {
  DeepseekV3Options() {
    moe.score = "sigmoid";
    moe.normalize = true;
    moe.balance = "bias";
  }
};

Field Size(const char* key, std::int64_t& value, std::string_view help, std::string_view known_as) {
  return {key, &value, Changes::kModel, help, kAutomaticModelSize, known_as};
}

std::vector<Field> DeepseekOptions::Fields() {
  std::vector<Field> fields = MoeOptions::Fields();
  std::erase_if(fields, [](const Field& field) {
    return field.key == "kv_heads" || field.key == "head_dim";
  });
  fields.push_back({"query_rank", &query_rank, Changes::kModel,
                    "Size of the queries' latent vector (0: queries have none)", kModelCount,
                    "q_lora_rank"});
  fields.push_back(Size("kv_rank", kv_rank,
                        "Size of the latent vector of keys and values (auto: dim / 4)",
                        "kv_lora_rank"));
  fields.push_back(Size("plain_dim", plain_dim,
                        "Size of a head's queries and keys without positions (auto: dim / heads)",
                        "qk_nope_head_dim"));
  fields.push_back(
      Size("rotary_dim", rotary_dim,
           "Size of a head's queries and keys with rotary positions (auto: half of dim / heads)",
           "qk_rope_head_dim"));
  fields.push_back(
      Size("value_dim", value_dim, "Size of a head's values (auto: dim / heads)", "v_head_dim"));
  fields.push_back({"predictor", &predictor, Changes::kModel,
                    "Blocks that predict the token after the next one in training (0 or 1)",
                    kUpToOne, "num_nextn_predict_layers mtp_num_layers"});
  fields.push_back({"predictor_weight", &predictor_weight, Changes::kPrograms,
                    "Factor of the loss of that prediction", kFromZero, "mtp_loss_scaling_factor"});
  fields.push_back({"rope_magnitude", &rope.magnitude, Changes::kModel,
                    "With yarn: weight of log(rope_factor) in the scale of the rotation", kFromZero,
                    "mscale"});
  fields.push_back({"rope_score_magnitude", &rope.score_magnitude, Changes::kModel,
                    "With yarn: weight of log(rope_factor) in the scale of attention scores",
                    kFromZero, "mscale_all_dim"});
  return fields;
}

void DeepseekOptions::Resolve(const ModelConfig& config) {
  MoeOptions::Resolve(config);
  const LatentShape sizes = LatentOf(config.dim);
  kv_rank = sizes.kv_rank;
  plain_dim = sizes.plain_dim;
  rotary_dim = sizes.rotary_dim;
  value_dim = sizes.value_dim;
}

Status DeepseekOptions::Check(const ModelConfig& config) const {
  PENSTOCK_TRY_STATUS(moe.Check());
  PENSTOCK_TRY_STATUS(rope.Check());
  const LatentShape sizes = LatentOf(config.dim);
  if (sizes.rotary_dim % 2 != 0) {
    return InvalidParameter("model.rotary_dim", "{}: rotary positions need an even size",
                            sizes.rotary_dim);
  }
  if (sizes.value_dim > sizes.query_dim()) {
    return InvalidParameter(
        "model.value_dim",
        "{} is more than `model.plain_dim` {} and `model.rotary_dim` {} together", sizes.value_dim,
        sizes.plain_dim, sizes.rotary_dim);
  }
  return {};
}

std::vector<HuggingFaceTensor> DeepseekNames() {
  std::vector<HuggingFaceTensor> names = MoeNames();
  std::erase_if(names, [](const HuggingFaceTensor& tensor) {
    return tensor.ours == "layers.N.q_norm.weight" || tensor.ours == "layers.N.k_norm.weight";
  });
  names.insert(names.end(),
               {{"layers.N.wq_a.weight", "model.layers.N.self_attn.q_a_proj.weight"},
                {"layers.N.q_norm.weight", "model.layers.N.self_attn.q_a_layernorm.weight"},
                {"layers.N.wq_b.weight", "model.layers.N.self_attn.q_b_proj.weight"},
                {"layers.N.wkv_a.weight", "model.layers.N.self_attn.kv_a_proj_with_mqa.weight"},
                {"layers.N.kv_norm.weight", "model.layers.N.self_attn.kv_a_layernorm.weight"},
                {"layers.N.wkv_b.weight", "model.layers.N.self_attn.kv_b_proj.weight"},
                {"predictor.hidden_norm.weight", "model.layers.N.hnorm.weight"},
                {"predictor.next_norm.weight", "model.layers.N.enorm.weight"},
                {"predictor.projection.weight", "model.layers.N.eh_proj.weight"},
                {"predictor.norm.weight", "model.layers.N.shared_head.norm.weight"}});
  return names;
}

void ReadDeepseek(HuggingFaceReader& reader, ModelConfig& config) {
  ReadDecoderSizes(reader, config);
  ReadRope(reader, /*scales_scores=*/true, config);
  reader.Option("q_lora_rank", "query_rank", "0", config);
  reader.Option("kv_lora_rank", "kv_rank", "", config);
  reader.Option("qk_nope_head_dim", "plain_dim", "", config);
  reader.Option("qk_rope_head_dim", "rotary_dim", "", config);
  reader.Option("v_head_dim", "value_dim", "", config);
  reader.Option("n_routed_experts", "experts", "", config);
  reader.Option("num_experts_per_tok", "top_k", "", config);
  reader.Option("moe_intermediate_size", "expert_hidden", "", config);
  reader.Option("n_shared_experts", "shared_experts", "", config);
  reader.Option("first_k_dense_replace", "dense_layers", "", config);
  reader.Option("routed_scaling_factor", "router_scale", "", config);
  reader.Option("norm_topk_prob", "normalize_top_k", "", config);
}

void ReadGroups(HuggingFaceReader& reader, ModelConfig& config) {
  reader.Option("n_group", "expert_groups", "", config);
  reader.Option("topk_group", "top_groups", "", config);
}

// The published code does not scale weights that it normalizes, and transformers does not normalize
// them.
void ReadDeepseekV2(HuggingFaceReader& reader, ModelConfig& config) {
  ReadDeepseek(reader, config);
  if (*reader.Value("topk_method") == "group_limited_greedy") {
    ReadGroups(reader, config);
  } else {
    reader.Expect("topk_method", "greedy");
  }
  reader.Option("aux_loss_alpha", "balance_loss", "", config);
}

void ReadDeepseekV3(HuggingFaceReader& reader, ModelConfig& config) {
  ReadDeepseek(reader, config);
  ReadGroups(reader, config);
  // Published weights have a block for prediction, which training may or may not use.
  config.options["predictor"] = "0";
}

void WriteDeepseek(const ModelConfig& config, const DeepseekOptions& options,
                   nlohmann::ordered_json& root) {
  WriteDecoderConfig(config, options, root);
  const LatentShape sizes = options.LatentOf(config.dim);
  root.erase("head_dim");
  root["num_key_value_heads"] = options.heads;
  root["q_lora_rank"] = sizes.query_rank > 0 ? nlohmann::ordered_json(sizes.query_rank) : nullptr;
  root["kv_lora_rank"] = sizes.kv_rank;
  root["qk_nope_head_dim"] = sizes.plain_dim;
  root["qk_rope_head_dim"] = sizes.rotary_dim;
  root["v_head_dim"] = sizes.value_dim;
  root["n_routed_experts"] = options.moe.experts;
  root["num_experts_per_tok"] = options.moe.top_k;
  root["moe_intermediate_size"] = options.ExpertHiddenOf(config.dim);
  root["n_shared_experts"] = options.moe.shared;
  root["first_k_dense_replace"] = options.moe.dense_layers;
  root["routed_scaling_factor"] = options.moe.scale;
  root["n_group"] = options.moe.groups;
  root["topk_group"] = options.moe.top_groups;
  root["moe_layer_freq"] = 1;
}

}  // namespace

ModelSpec DeepseekV2() {
  ModelSpec model = MoeSpec<DeepseekOptions>();
  model.name = "deepseek_v2";
  model.summary = "latent attention; shared and routed experts";
  model.huggingface.model_type = "deepseek_v2";
  model.huggingface.architecture = "DeepseekV2ForCausalLM";
  model.huggingface.names = DeepseekNames();
  model.huggingface.read = ReadDeepseekV2;
  model.huggingface.write = [](const ModelConfig& config, nlohmann::ordered_json& root) {
    const auto options = OptionsOf<DeepseekOptions>(config);
    WriteDeepseek(config, options, root);
    root["scoring_func"] = "softmax";
    root["norm_topk_prob"] = false;
    root["topk_method"] = options.moe.groups > 1 ? "group_limited_greedy" : "greedy";
    root["aux_loss_alpha"] = options.moe.balance_loss;
  };
  return model;
}

ModelSpec DeepseekV3() {
  ModelSpec model = MoeSpec<DeepseekV3Options>();
  model.name = "deepseek_v3";
  model.summary = "as deepseek_v2, with sigmoid routing that a bias balances";
  model.huggingface.model_type = "deepseek_v3";
  model.huggingface.architecture = "DeepseekV3ForCausalLM";
  model.huggingface.names = DeepseekNames();
  model.huggingface.read = ReadDeepseekV3;
  model.huggingface.write = [](const ModelConfig& config, nlohmann::ordered_json& root) {
    const auto options = OptionsOf<DeepseekV3Options>(config);
    WriteDeepseek(config, options, root);
    root["scoring_func"] = "sigmoid";
    root["norm_topk_prob"] = options.moe.normalize;
    root["topk_method"] = "noaux_tc";
    root["num_nextn_predict_layers"] = options.predictor;
  };
  return model;
}

}  // namespace penstock
