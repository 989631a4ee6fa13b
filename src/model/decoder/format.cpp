// The config.json of decoders: LlamaConfig and Qwen3Config of the transformers package.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "model/decoder/decoder.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

// Keys of `rope_scaling`, or of `rope_parameters` in newer files, which also has rope_theta.
struct RopeKey {
  std::string_view type;
  const char* theirs;
  std::string_view ours;
  std::string_view otherwise;
};
constexpr std::array kRopeKeys = {
    RopeKey{"llama3", "low_freq_factor", "rope_low_frequency_factor", "1"},
    RopeKey{"llama3", "high_freq_factor", "rope_high_frequency_factor", "4"},
    RopeKey{"llama3", "original_max_position_embeddings", "rope_original_sequence", "8192"},
    RopeKey{"yarn", "beta_fast", "rope_fast_turns", "32"},
    RopeKey{"yarn", "beta_slow", "rope_slow_turns", "1"},
    RopeKey{"yarn", "mscale", "rope_magnitude", "0"},
    RopeKey{"yarn", "mscale_all_dim", "rope_score_magnitude", "0"},
    RopeKey{"yarn", "original_max_position_embeddings", "rope_original_sequence", "4096"},
};

}  // namespace

void ReadRope(HuggingFaceReader& reader, std::string_view types, ModelConfig& config) {
  reader.Option("rope_theta", "rope_theta", "10000", config);
  for (const char* const key : {"rope_scaling", "rope_parameters"}) {
    const Json* const given = reader.Object(key);
    if (given == nullptr) continue;
    HuggingFaceReader rope(*given);
    if (rope.Has("rope_theta")) rope.Option("rope_theta", "rope_theta", "", config);
    rope.Option(rope.Has("rope_type") ? "rope_type" : "type", "rope_scaling", "default", config);
    std::string& type = config.options["rope_scaling"];
    if (type == "default") type = "none";
    const std::vector<std::string_view> known = Words(types);
    if (type != "none" && std::ranges::find(known, type) == known.end()) {
      return reader.Fault(
          key, fmt::format("the type '{}' is none of default, {}", type, fmt::join(known, ", ")));
    }
    if (type != "none") rope.Option("factor", "rope_factor", "1", config);
    for (const RopeKey& other : kRopeKeys) {
      if (type != other.type) continue;
      rope.Option(other.theirs, other.ours, other.otherwise, config);
    }
    if (const Status status = rope.Finish(); !status) reader.Fault(key, status.error().message);
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
    json["mscale"] = rope.magnitude;
    json["mscale_all_dim"] = rope.score_magnitude;
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

void ReadDecoderConfig(HuggingFaceReader& reader, ModelConfig& config) {
  reader.Size("vocab_size", config.vocabulary);
  reader.Size("hidden_size", config.dim);
  reader.Size("num_hidden_layers", config.layers);
  std::int64_t heads = 0, hidden = 0;
  reader.Size("num_attention_heads", heads);
  reader.Size("intermediate_size", hidden);
  config.options["heads"] = fmt::format("{}", heads);
  config.options["hidden"] = fmt::format("{}", hidden);
  reader.Option("num_key_value_heads", "kv_heads", "0", config);
  reader.Option("rms_norm_eps", "norm_epsilon", "1e-06", config);
  reader.Option("tie_word_embeddings", "tied", "false", config);
  ReadRope(reader, "linear llama3", config);
  reader.Expect("hidden_act", "silu");
  for (const char* const key : {"attention_bias", "mlp_bias", "use_sliding_window"}) {
    reader.Expect(key, false);
  }
  reader.Expect("attention_dropout", 0);
  reader.Expect("pretraining_tp", 1);
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
