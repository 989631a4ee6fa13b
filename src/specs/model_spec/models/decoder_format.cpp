// The config.json of decoders: LlamaConfig and Qwen3Config of the transformers package.
#include <algorithm>
#include <array>

#include "model_spec/models/decoder_options.h"

namespace penstock {
namespace {

// Keys of rope_parameters by the type that reads them.
struct RopeKey {
  std::string_view types;
  const char* theirs;
  std::string_view ours;
};
constexpr std::array kRopeKeys = {
    RopeKey{"linear llama3 yarn", "factor", "rope_factor"},
    RopeKey{"llama3", "low_freq_factor", "rope_low_frequency_factor"},
    RopeKey{"llama3", "high_freq_factor", "rope_high_frequency_factor"},
    RopeKey{"llama3 yarn", "original_max_position_embeddings", "rope_original_sequence"},
    RopeKey{"yarn", "beta_fast", "rope_fast_turns"},
    RopeKey{"yarn", "beta_slow", "rope_slow_turns"},
    RopeKey{"yarn", "attention_factor", "rope_attention_factor"},
};

// Returns the scale of cosines and sines by mscale and mscale_all_dim; 0 if they do not set it.
double AttentionFactor(const nlohmann::json& yarn) {
  RopeScaling scaling{.type = "yarn", .factor = yarn.at("factor").get<double>()};
  scaling.magnitude = yarn.at("mscale").get<double>();
  scaling.score_magnitude = yarn.at("mscale_all_dim").get<double>();
  const bool is_set = scaling.magnitude != 0 && scaling.score_magnitude != 0;
  return is_set ? scaling.MagnitudeScale() : 0;
}

}  // namespace

void ReadRope(HuggingFaceReader& reader, bool scales_scores, ModelConfig& config) {
  const nlohmann::json& given = *reader.Object("rope_parameters");
  HuggingFaceReader rope(given);
  rope.Option("rope_theta", "rope_theta", "", config);
  const auto type = given.at("rope_type").get<std::string>();
  config.options["rope_scaling"] = type == "default" ? "none" : type;
  for (const RopeKey& key : kRopeKeys) {
    const std::vector<std::string_view> types = Words(key.types);
    if (std::ranges::find(types, type) == types.end()) continue;
    rope.Option(key.theirs, key.ours, "", config);
  }
  // Older files have rope_scaling.
  reader.Include(rope, reader.Has("rope_scaling") ? "rope_scaling" : "rope_parameters");
  if (type != "yarn") return;
  if (scales_scores) {
    rope.Option("mscale", "rope_magnitude", "", config);
    rope.Option("mscale_all_dim", "rope_score_magnitude", "", config);
  } else if (given.at("attention_factor") == 0) {
    config.options["rope_attention_factor"] = fmt::format("{}", AttentionFactor(given));
  }
}

nlohmann::ordered_json RopeJson(const RopeScaling& rope) {
  if (rope.type == "none") return nullptr;
  nlohmann::ordered_json json = {{"rope_type", rope.type}, {"factor", rope.factor}};
  if (rope.type == "llama3") {
    json["low_freq_factor"] = rope.low_frequency_factor;
    json["high_freq_factor"] = rope.high_frequency_factor;
  } else if (rope.type == "yarn") {
    json["beta_fast"] = rope.fast_turns;
    json["beta_slow"] = rope.slow_turns;
    if (rope.magnitude != 0) json["mscale"] = rope.magnitude;
    if (rope.score_magnitude != 0) json["mscale_all_dim"] = rope.score_magnitude;
    if (rope.attention_factor != 0) json["attention_factor"] = rope.attention_factor;
  }
  if (rope.type != "linear") json["original_max_position_embeddings"] = rope.original_sequence;
  return json;
}

std::vector<HuggingFaceTensor> DecoderNames() {
  return {{"embedding.weight", "model.embed_tokens.weight"},
          {"layers.N.attention_norm.weight", "model.layers.N.input_layernorm.weight"},
          {"layers.N.wq.weight", "model.layers.N.self_attn.q_proj.weight"},
          {"layers.N.wk.weight", "model.layers.N.self_attn.k_proj.weight"},
          {"layers.N.wv.weight", "model.layers.N.self_attn.v_proj.weight"},
          {"layers.N.wo.weight", "model.layers.N.self_attn.o_proj.weight"},
          {"layers.N.q_norm.weight", "model.layers.N.self_attn.q_norm.weight"},
          {"layers.N.k_norm.weight", "model.layers.N.self_attn.k_norm.weight"},
          {"layers.N.ffn_norm.weight", "model.layers.N.post_attention_layernorm.weight"},
          {"layers.N.w1.weight", "model.layers.N.mlp.gate_proj.weight"},
          {"layers.N.w2.weight", "model.layers.N.mlp.down_proj.weight"},
          {"layers.N.w3.weight", "model.layers.N.mlp.up_proj.weight"},
          {"norm.weight", "model.norm.weight"},
          {"head.weight", "lm_head.weight"}};
}

void ReadDecoderSizes(HuggingFaceReader& reader, ModelConfig& config) {
  reader.Size("vocab_size", config.vocabulary);
  reader.Size("hidden_size", config.dim);
  reader.Size("num_hidden_layers", config.layers);
  reader.Option("num_attention_heads", "heads", "", config);
  reader.Option("intermediate_size", "hidden", "", config);
  reader.Option("rms_norm_eps", "norm_epsilon", "", config);
  reader.Option("tie_word_embeddings", "tied", "", config);
}

void ReadDecoderConfig(HuggingFaceReader& reader, ModelConfig& config) {
  ReadDecoderSizes(reader, config);
  reader.Option("num_key_value_heads", "kv_heads", "0", config);
  reader.Option("head_dim", "head_dim", "0", config);
  ReadRope(reader, /*scales_scores=*/false, config);
}

void WriteDecoderConfig(const ModelConfig& config, const DecoderOptions& options,
                        nlohmann::ordered_json& root) {
  const AttentionSizes sizes = options.AttentionOf(config.dim);
  root["vocab_size"] = config.vocabulary;
  root["hidden_size"] = config.dim;
  root["intermediate_size"] = options.HiddenOf(config.dim);
  root["num_hidden_layers"] = config.layers;
  root["num_attention_heads"] = sizes.heads;
  root["num_key_value_heads"] = sizes.kv_heads;
  root["head_dim"] = sizes.head_dim;
  root["max_position_embeddings"] = config.sequence;
  root["rms_norm_eps"] = options.norm_epsilon;
  root["rope_theta"] = options.rope_theta;
  root["rope_scaling"] = RopeJson(options.rope);
  root["hidden_act"] = "silu";
  root["attention_bias"] = false;
  root["attention_dropout"] = 0.0;
  root["tie_word_embeddings"] = options.tied;
  root["torch_dtype"] = "float32";
  root["use_cache"] = true;
}

}  // namespace penstock
