#include "huggingface/config_class.h"

#include <algorithm>
#include <array>

namespace penstock {
namespace {

using enum KeyKind;

// Keys of most decoders.
constexpr ClassKey kActivation = {"hidden_act", kOnly, R"("silu")"};
constexpr ClassKey kAttentionBias = {"attention_bias", kOnly, "false"};
constexpr ClassKey kAttentionDropout = {"attention_dropout", kOnly, "0.0"};
constexpr ClassKey kRopeParameters = {"rope_parameters", kAny, "null", true};
constexpr ClassKey kTied = {"tie_word_embeddings", kFlag, "false"};

// Returns the keys of a decoder: the keys of all decoders with these defaults, and its own.
std::vector<ClassKey> Decoder(const std::array<std::string_view, 7>& defaults,
                              std::vector<ClassKey> own) {
  const auto& [vocabulary, size, intermediate, layers, heads, positions, epsilon] = defaults;
  std::vector<ClassKey> keys = {
      {"vocab_size", kWhole, vocabulary},          {"hidden_size", kWhole, size},
      {"intermediate_size", kWhole, intermediate}, {"num_hidden_layers", kWhole, layers},
      {"num_attention_heads", kWhole, heads},      {"max_position_embeddings", kWhole, positions},
      {"rms_norm_eps", kNumber, epsilon}};
  keys.insert(keys.end(), own.begin(), own.end());
  keys.insert(keys.end(), {kTied, kRopeParameters, kActivation, kAttentionDropout});
  return keys;
}

ConfigClass Llama() {
  return {.model_type = "llama",
          .name = "LlamaConfig",
          .keys = Decoder({"32000", "4096", "11008", "32", "32", "2048", "1e-06"},
                          {{"num_key_value_heads", kWhole, "null", true},
                           {"head_dim", kWhole, "null", true},
                           {"mlp_bias", kOnly, "false"},
                           kAttentionBias}),
          .without_effect = "pretraining_tp",
          .rope_theta = 1e4,
          .heads_divide_size = true};
}

ConfigClass Qwen3() {
  return {.model_type = "qwen3",
          .name = "Qwen3Config",
          .keys = Decoder({"151936", "4096", "22016", "32", "32", "32768", "1e-06"},
                          {{"num_key_value_heads", kWhole, "32", true},
                           {"head_dim", kWhole, "128"},
                           {"use_sliding_window", kOnly, "false"},
                           {"layer_types", kAny, "null", true},
                           kAttentionBias}),
          .without_effect = "sliding_window max_window_layers",
          .rope_theta = 1e4};
}

ConfigClass Mixtral() {
  return {.model_type = "mixtral",
          .name = "MixtralConfig",
          .keys = Decoder({"32000", "4096", "14336", "32", "32", "131072", "1e-05"},
                          {{"num_key_value_heads", kWhole, "8"},
                           {"head_dim", kWhole, "null", true},
                           {"num_experts_per_tok", kWhole, "2"},
                           {"num_local_experts", kWhole, "8"},
                           {"router_aux_loss_coef", kNumber, "0.001"},
                           {"router_jitter_noise", kOnly, "0.0"},
                           {"sliding_window", kOnly, "null", true}}),
          .without_effect = "output_router_logits",
          .aliases = {{"num_experts", "num_local_experts"}},
          .rope_theta = 1e6};
}

ConfigClass Qwen3Moe() {
  return {
      .model_type = "qwen3_moe",
      .name = "Qwen3MoeConfig",
      .keys = Decoder({"151936", "2048", "6144", "24", "32", "32768", "1e-06"},
                      {{"num_key_value_heads", kWhole, "4"},
                       {.name = "head_dim", .kind = kWhole, .otherwise = "null", .in_class = false},
                       {"num_experts_per_tok", kWhole, "8"},
                       {"num_experts", kWhole, "128"},
                       {"moe_intermediate_size", kWhole, "768"},
                       {"norm_topk_prob", kFlag, "false"},
                       {"router_aux_loss_coef", kNumber, "0.001"},
                       {"decoder_sparse_step", kOnly, "1"},
                       {"mlp_only_layers", kAny, "null", true},
                       {"use_sliding_window", kOnly, "false"},
                       kAttentionBias}),
      .without_effect = "sliding_window output_router_logits",
      .aliases = {{"num_local_experts", "num_experts"}},
      .rope_theta = 1e4};
}

ConfigClass DeepseekV2() {
  return {
      .model_type = "deepseek_v2",
      .name = "DeepseekV2Config",
      .keys = Decoder(
          {"102400", "4096", "11008", "32", "32", "2048", "1e-06"},
          {{"num_key_value_heads", kWhole, "null", true},
           {"mlp_bias", kOnly, "false"},
           {.name = "first_k_dense_replace", .kind = kWhole, .otherwise = "0", .least = 0},
           {"kv_lora_rank", kWhole, "512"},
           {"q_lora_rank", kWhole, "1536", true},
           {"n_group", kWhole, "null", true},
           {"n_routed_experts", kWhole, "64"},
           {.name = "n_shared_experts", .kind = kWhole, .otherwise = "2", .least = 0},
           {"qk_nope_head_dim", kWhole, "128"},
           {"qk_rope_head_dim", kWhole, "64"},
           {"routed_scaling_factor", kNumber, "1.0"},
           {"topk_group", kWhole, "null", true},
           {"topk_method", kText, R"("greedy")"},
           {"norm_topk_prob", kOnly, "false"},
           {"v_head_dim", kWhole, "128"},
           {"num_experts_per_tok", kWhole, "null"},
           {"moe_intermediate_size", kWhole, "1407"},
           {.name = "scoring_func", .kind = kOnly, .otherwise = R"("softmax")", .in_class = false},
           {.name = "moe_layer_freq", .kind = kOnly, .otherwise = "1", .in_class = false},
           {.name = "aux_loss_alpha", .kind = kNumber, .otherwise = "0.001", .in_class = false},
           kAttentionBias}),
      .without_effect = "pretraining_tp head_dim qk_head_dim output_router_logits",
      .aliases = {{"num_experts", "n_routed_experts"}},
      .rope_theta = 1e4,
      .heads_divide_size = true,
      .is_latent = true};
}

ConfigClass DeepseekV3() {
  return {
      .model_type = "deepseek_v3",
      .name = "DeepseekV3Config",
      .keys = Decoder(
          {"129280", "7168", "18432", "61", "128", "4096", "1e-06"},
          {{"moe_intermediate_size", kWhole, "2048"},
           {"num_key_value_heads", kWhole, "128", true},
           {.name = "n_shared_experts", .kind = kWhole, .otherwise = "1", .least = 0},
           {"n_routed_experts", kWhole, "256"},
           {"routed_scaling_factor", kNumber, "2.5"},
           {"kv_lora_rank", kWhole, "512"},
           {"q_lora_rank", kWhole, "1536", true},
           {"qk_rope_head_dim", kWhole, "64"},
           {"v_head_dim", kWhole, "128"},
           {"qk_nope_head_dim", kWhole, "128"},
           {"n_group", kWhole, "8"},
           {"topk_group", kWhole, "4"},
           {"num_experts_per_tok", kWhole, "8"},
           {.name = "first_k_dense_replace", .kind = kWhole, .otherwise = "3", .least = 0},
           {"norm_topk_prob", kFlag, "true"},
           {"rope_interleave", kOnly, "true"},
           {.name = "head_dim", .kind = kWhole, .otherwise = "null", .in_class = false},
           {.name = "topk_method", .kind = kOnly, .otherwise = R"("noaux_tc")", .in_class = false},
           {.name = "scoring_func", .kind = kOnly, .otherwise = R"("sigmoid")", .in_class = false},
           {.name = "moe_layer_freq", .kind = kOnly, .otherwise = "1", .in_class = false},
           kAttentionBias}),
      .without_effect =
          "pretraining_tp num_mtp_layers num_nextn_predict_layers qk_head_dim "
          "output_router_logits",
      .aliases = {{"num_local_experts", "n_routed_experts"}},
      .rope_theta = 1e4,
      .is_latent = true};
}

ConfigClass Gpt2() {
  return {.model_type = "gpt2",
          .name = "GPT2Config",
          .keys = {{"vocab_size", kWhole, "50257"},
                   {"n_positions", kWhole, "1024"},
                   {"n_embd", kWhole, "768"},
                   {"n_layer", kWhole, "12"},
                   {"n_head", kWhole, "12"},
                   {"n_inner", kWhole, "null", true},
                   {"activation_function", kOnly, R"("gelu_new")"},
                   {"layer_norm_epsilon", kNumber, "1e-05"},
                   {"scale_attn_weights", kOnly, "true"},
                   {"scale_attn_by_inverse_layer_idx", kOnly, "false"},
                   {"reorder_and_upcast_attn", kOnly, "false"},
                   {"add_cross_attention", kOnly, "false"},
                   {"tie_word_embeddings", kFlag, "true"}},
          .without_effect =
              "resid_pdrop embd_pdrop attn_pdrop summary_type "
              "summary_use_proj summary_activation summary_proj_to_labels "
              "summary_first_dropout",
          .aliases = {{"hidden_size", "n_embd"},
                      {"max_position_embeddings", "n_positions"},
                      {"num_attention_heads", "n_head"},
                      {"num_hidden_layers", "n_layer"}}};
}

}  // namespace

const std::vector<ConfigClass>& ConfigClasses() {
  static const std::vector<ConfigClass> classes = {
      Llama(), Qwen3(), Mixtral(), Qwen3Moe(), DeepseekV2(), DeepseekV3(), Gpt2()};
  return classes;
}

const ConfigClass* FindConfigClass(std::string_view model_type) {
  const auto found = std::ranges::find(ConfigClasses(), model_type, &ConfigClass::model_type);
  return found == ConfigClasses().end() ? nullptr : &*found;
}

std::string_view CommonKeysWithoutEffect() {
  return "model_type transformers_version architectures output_hidden_states return_dict dtype "
         "torch_dtype chunk_size_feed_forward is_encoder_decoder id2label label2id num_labels "
         "problem_type name_or_path _name_or_path _commit_hash output_attentions "
         "attn_implementation _attn_implementation experts_implementation auto_map "
         "tie_last_hidden_states quantization_config initializer_range pad_token_id bos_token_id "
         "eos_token_id "
         // Settings of text generation:
         "assistant_confidence_threshold assistant_lookbehind bad_words_ids begin_suppress_tokens "
         "diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size "
         "encoder_repetition_penalty epsilon_cutoff eta_cutoff exponential_decay_length_penalty "
         "forced_bos_token_id forced_eos_token_id length_penalty max_length min_length "
         "no_repeat_ngram_size num_assistant_tokens num_assistant_tokens_schedule num_beam_groups "
         "num_beams num_return_sequences output_scores remove_invalid_values repetition_penalty "
         "return_dict_in_generate suppress_tokens target_lookbehind temperature top_k top_p "
         "typical_p use_cache";
}

}  // namespace penstock
