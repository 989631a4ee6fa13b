// Qwen3 with experts (Qwen3 Technical Report, 2025, section 2).
#include "model/decoder/moe_decoder.h"

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
  reader.Option("head_dim", "head_dim", "0", config);
  reader.Option(reader.Has("num_local_experts") ? "num_local_experts" : "num_experts", "experts",
                "128", config);
  reader.Option("num_experts_per_tok", "top_k", "8", config);
  reader.Option("moe_intermediate_size", "expert_hidden", "768", config);
  reader.Option("norm_topk_prob", "normalize_top_k", "false", config);
  reader.Option("router_aux_loss_coef", "balance_loss", "0.001", config);
  reader.Expect("decoder_sparse_step", 1);
  reader.Expect("mlp_only_layers", nlohmann::json::array());
}

}  // namespace

ModelEntry Qwen3Moe() {
  ModelEntry model = MoeEntry<Qwen3MoeOptions>();
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
    root["router_aux_loss_coef"] = options.moe.balance_loss;
    root["decoder_sparse_step"] = 1;
    root["mlp_only_layers"] = nlohmann::ordered_json::array();
  };
  return model;
}

}  // namespace penstock
