#include "model_spec/models/gpt2.h"

#include "model_spec/model_spec.h"

namespace penstock {
namespace {

Status CheckGpt2(const ModelConfig& config) {
  const auto options = OptionsOf<Gpt2Options>(config);
  if (config.dim % options.heads == 0) return {};
  return InvalidParameter("model.heads", "{} does not divide `model.dim` {}", options.heads,
                          config.dim);
}

ModelShape ShapeOfGpt2(const ModelConfig& config) {
  const auto options = OptionsOf<Gpt2Options>(config);
  return {.name = config.name,
          .architecture = Architecture::kGpt2,
          .vocabulary = config.vocabulary,
          .dim = config.dim,
          .layers = config.layers,
          .heads = options.heads,
          .kv_heads = options.heads,
          .head_dim = config.dim / options.heads,
          .hidden = options.HiddenOf(config.dim),
          .positions = config.sequence,
          .tied = options.tied};
}

std::vector<SharedDeclaration> Shared(const ModelConfig& config) {
  if (!OptionsOf<Gpt2Options>(config).tied) return {};
  return {{"embedding.weight",
           [](const LayerRange& range) { return range.has_embedding() || range.has_logits(); },
           "model.tied=false"}};
}

std::vector<HuggingFaceTensor> Gpt2Names() {
  constexpr auto kTransposed = TensorLayout::kTransposed;
  return {{"embedding.weight", "transformer.wte.weight"},
          {"positions.weight", "transformer.wpe.weight", TensorLayout::kLeadingRows},
          {"layers.N.attention_norm.weight", "transformer.h.N.ln_1.weight"},
          {"layers.N.attention_norm.bias", "transformer.h.N.ln_1.bias"},
          {"layers.N.wqkv.weight", "transformer.h.N.attn.c_attn.weight", kTransposed},
          {"layers.N.wqkv.bias", "transformer.h.N.attn.c_attn.bias"},
          {"layers.N.wo.weight", "transformer.h.N.attn.c_proj.weight", kTransposed},
          {"layers.N.wo.bias", "transformer.h.N.attn.c_proj.bias"},
          {"layers.N.ffn_norm.weight", "transformer.h.N.ln_2.weight"},
          {"layers.N.ffn_norm.bias", "transformer.h.N.ln_2.bias"},
          {"layers.N.w1.weight", "transformer.h.N.mlp.c_fc.weight", kTransposed},
          {"layers.N.w1.bias", "transformer.h.N.mlp.c_fc.bias"},
          {"layers.N.w2.weight", "transformer.h.N.mlp.c_proj.weight", kTransposed},
          {"layers.N.w2.bias", "transformer.h.N.mlp.c_proj.bias"},
          {"norm.weight", "transformer.ln_f.weight"},
          {"norm.bias", "transformer.ln_f.bias"},
          {"head.weight", "lm_head.weight"}};
}

// Dropout is not read: it belongs to a run, and the published 0.1 belongs to the pretraining.
void ReadGpt2(HuggingFaceReader& reader, ModelConfig& config) {
  reader.Size("vocab_size", config.vocabulary);
  reader.Size("n_embd", config.dim);
  reader.Size("n_layer", config.layers);
  reader.Option("n_head", "heads", "", config);
  reader.Option("n_inner", "hidden", "0", config);
  reader.Option("layer_norm_epsilon", "norm_epsilon", "", config);
  reader.Option("tie_word_embeddings", "tied", "", config);
}

void WriteGpt2(const ModelConfig& config, nlohmann::ordered_json& root) {
  const auto options = OptionsOf<Gpt2Options>(config);
  root["vocab_size"] = config.vocabulary;
  root["n_embd"] = config.dim;
  root["n_layer"] = config.layers;
  root["n_head"] = options.heads;
  root["n_inner"] = options.HiddenOf(config.dim);
  root["n_positions"] = config.sequence;
  root["layer_norm_epsilon"] = options.norm_epsilon;
  root["activation_function"] = "gelu_new";
  root["tie_word_embeddings"] = options.tied;
  root["torch_dtype"] = "float32";
}

}  // namespace

ModelSpec Gpt2() {
  ModelSpec model;
  model.name = "gpt2";
  model.summary = "learned positions, LayerNorm, GELU, biases, a tied head";
  model.options = MakeOptions<Gpt2Options>;
  model.check = CheckGpt2;
  model.separates_documents = true;
  model.divides_samples = true;
  model.shared = Shared;
  model.first_alike_layer = [](const ModelConfig&) { return 0; };
  model.divided = [](const ModelConfig& config) -> std::vector<DividedSize> {
    const auto options = OptionsOf<Gpt2Options>(config);
    return {{"model.heads", options.heads}, {"model.hidden", options.HiddenOf(config.dim)}};
  };
  model.vocabulary = [](const ModelConfig& config) -> Result<VocabularyTables> {
    const bool tied = OptionsOf<Gpt2Options>(config).tied;
    return VocabularyTables{"embedding.weight", tied ? "embedding.weight" : "head.weight"};
  };
  model.shape = ShapeOfGpt2;
  model.huggingface = {"gpt2", "GPT2LMHeadModel", ReadGpt2, Gpt2Names(), WriteGpt2};
  return model;
}

}  // namespace penstock
