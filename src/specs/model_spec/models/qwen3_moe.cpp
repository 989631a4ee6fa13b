// Qwen3 with experts (Qwen3 Technical Report, 2025, section 2).
#include "huggingface/config_file.h"
#include "model_spec/models/moe_options.h"

namespace penstock {
namespace {

struct Qwen3MoeOptions : MoeOptions {
  Qwen3MoeOptions() {
    rope_theta = 1e6;
    norm_epsilon = 1e-6;
    qk_norm = true;
    moe.balance = "loss";
  }
};

void ReadQwen3Moe(HuggingFaceReader& reader, ModelConfig& config) {
  ReadDecoderConfig(reader, config);
  reader.Option("num_experts", "experts", "", config);
  reader.Option("num_experts_per_tok", "top_k", "", config);
  reader.Option("moe_intermediate_size", "expert_hidden", "", config);
  reader.Option("norm_topk_prob", "normalize_top_k", "", config);
  reader.Option("router_aux_loss_coef", "balance_loss", "", config);
  const auto dense_layers = LeadingDenseLayers(reader.root());
  if (!dense_layers) return reader.Fail(dense_layers.error());
  config.options["dense_layers"] = fmt::format("{}", *dense_layers);
  FromRouterAuxLoss(config);
}

}  // namespace

ModelSpec Qwen3Moe() {
  ModelSpec model = MoeSpec<Qwen3MoeOptions>();
  model.name = "qwen3_moe";
  model.summary = "as qwen3, with experts";
  model.huggingface.model_type = "qwen3_moe";
  model.huggingface.architecture = "Qwen3MoeForCausalLM";
  model.huggingface.read = ReadQwen3Moe;
  model.huggingface.write = [](const ModelConfig& config, nlohmann::ordered_json& root) {
    const auto options = OptionsOf<Qwen3MoeOptions>(config);
    WriteDecoderConfig(config, options, root);
    root["num_experts"] = options.moe.experts;
    root["num_experts_per_tok"] = options.moe.top_k;
    root["moe_intermediate_size"] = options.ExpertHiddenOf(config.dim);
    root["norm_topk_prob"] = options.moe.normalize;
    root["router_aux_loss_coef"] = RouterAuxLossOf(config, options.moe);
    root["decoder_sparse_step"] = 1;
    root["mlp_only_layers"] = nlohmann::ordered_json::array();
    for (std::int64_t layer = 0; layer < options.moe.dense_layers; ++layer) {
      root["mlp_only_layers"].push_back(layer);
    }
  };
  return model;
}

}  // namespace penstock
