// Mixtral (Jiang et al., Mixtral of Experts, 2024): Llama's blocks with experts.
#include "model_spec/models/moe_options.h"

namespace penstock {
namespace {

struct MixtralOptions : MoeOptions {
  MixtralOptions() {
    rope_theta = 1e6;
    moe.balance = "loss";
    moe.balance_loss = 0.02;
  }
};

std::vector<HuggingFaceTensor> MixtralNames() {
  constexpr auto kPerExpert = TensorLayout::kPerExpert;
  std::vector<HuggingFaceTensor> names = DecoderNames();
  names.insert(names.end(),
               {{"layers.N.router.weight", "model.layers.N.block_sparse_moe.gate.weight"},
                {"layers.N.experts.w1.weight",
                 "model.layers.N.block_sparse_moe.experts.E.w1.weight", kPerExpert},
                {"layers.N.experts.w2.weight",
                 "model.layers.N.block_sparse_moe.experts.E.w2.weight", kPerExpert},
                {"layers.N.experts.w3.weight",
                 "model.layers.N.block_sparse_moe.experts.E.w3.weight", kPerExpert}});
  return names;
}

void ReadMixtral(HuggingFaceReader& reader, ModelConfig& config) {
  ReadDecoderConfig(reader, config);
  reader.Option("num_local_experts", "experts", "", config);
  reader.Option("num_experts_per_tok", "top_k", "", config);
  reader.Option("router_aux_loss_coef", "balance_loss", "", config);
  FromRouterAuxLoss(config);
}

}  // namespace

ModelSpec Mixtral() {
  ModelSpec model = MoeSpec<MixtralOptions>();
  model.name = "mixtral";
  model.summary = "as llama, with experts";
  model.huggingface.model_type = "mixtral";
  model.huggingface.architecture = "MixtralForCausalLM";
  model.huggingface.names = MixtralNames();
  model.huggingface.read = ReadMixtral;
  model.huggingface.write = [](const ModelConfig& config, nlohmann::ordered_json& root) {
    const auto options = OptionsOf<MixtralOptions>(config);
    WriteDecoderConfig(config, options, root);
    root["intermediate_size"] = options.ExpertHiddenOf(config.dim);
    root.erase("attention_bias");
    root["num_local_experts"] = options.moe.experts;
    root["num_experts_per_tok"] = options.moe.top_k;
    root["router_aux_loss_coef"] = RouterAuxLossOf(config, options.moe);
    root["router_jitter_noise"] = 0.0;
    root["sliding_window"] = nullptr;
  };
  return model;
}

}  // namespace penstock
