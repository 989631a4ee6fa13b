// config.json is read as published, written back, and refused where a model does not support it.
#include "model_spec/huggingface_config.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>

namespace penstock {
namespace {

using Json = nlohmann::json;

// The keys of meta-llama/Llama-3.1-8B that concern the model.
constexpr const char* kLlama = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 128000, "eos_token_id": 128001, "hidden_act": "silu", "hidden_size": 4096,
  "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 131072,
  "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
  "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
  "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
  "transformers_version": "4.43.0.dev0", "use_cache": true, "vocab_size": 128256})";

// The config.json of Qwen/Qwen3-0.6B.
constexpr const char* kQwen3 = R"({
  "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024, "intermediate_size": 3072,
  "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
  "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
  "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
  "tie_word_embeddings": true, "use_sliding_window": false, "vocab_size": 151936})";

// The config.json of mistralai/Mixtral-8x7B-v0.1.
constexpr const char* kMixtral = R"({
  "architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0, "hidden_act": "silu",
  "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768,
  "model_type": "mixtral", "num_attention_heads": 32, "num_experts_per_tok": 2,
  "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8,
  "output_router_logits": false, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0,
  "router_aux_loss_coef": 0.02, "sliding_window": null, "tie_word_embeddings": false,
  "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 32000})";

// The config.json of Qwen/Qwen3-30B-A3B.
constexpr const char* kQwen3Moe = R"({
  "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "decoder_sparse_step": 1, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048,
  "intermediate_size": 6144, "max_position_embeddings": 40960, "max_window_layers": 48,
  "mlp_only_layers": [], "model_type": "qwen3_moe", "moe_intermediate_size": 768,
  "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 128,
  "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4,
  "output_router_logits": false, "rms_norm_eps": 1e-06, "rope_scaling": null,
  "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": null,
  "tie_word_embeddings": false, "use_sliding_window": false, "vocab_size": 151936})";

// The config.json of deepseek-ai/DeepSeek-V2-Lite.
constexpr const char* kDeepseekV2 = R"({
  "architectures": ["DeepseekV2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "aux_loss_alpha": 0.001, "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 2048,
  "intermediate_size": 10944, "kv_lora_rank": 512, "max_position_embeddings": 163840,
  "model_type": "deepseek_v2", "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_group": 1,
  "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": false,
  "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27,
  "num_key_value_heads": 16, "pretraining_tp": 1, "q_lora_rank": null, "qk_nope_head_dim": 128,
  "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
  "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707,
                   "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096,
                   "type": "yarn"},
  "rope_theta": 10000, "routed_scaling_factor": 1.0, "scoring_func": "softmax", "seq_aux": true,
  "tie_word_embeddings": false, "topk_group": 1, "topk_method": "greedy", "v_head_dim": 128,
  "vocab_size": 102400})";

// The config.json of deepseek-ai/DeepSeek-V3.
constexpr const char* kDeepseekV3 = R"({
  "architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "ep_size": 1, "first_k_dense_replace": 3, "hidden_act": "silu", "hidden_size": 7168,
  "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 163840,
  "model_type": "deepseek_v3", "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 8,
  "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true,
  "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61,
  "num_key_value_heads": 128, "num_nextn_predict_layers": 1, "q_lora_rank": 1536,
  "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
  "quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                          "weight_block_size": [128, 128]},
  "rms_norm_eps": 1e-06,
  "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0,
                   "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096,
                   "type": "yarn"},
  "rope_theta": 10000, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid",
  "tie_word_embeddings": false, "topk_group": 4, "topk_method": "noaux_tc", "v_head_dim": 128,
  "vocab_size": 129280})";

constexpr const char* kGpt2 = R"({
  "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
  "embd_pdrop": 0.1, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
  "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12,
  "n_positions": 1024, "resid_pdrop": 0.1, "vocab_size": 50257})";

class HuggingFace : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Result<ModelConfig> Read(const std::string& text) {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "config.json") << text;
    return ReadHuggingFaceConfig(folder_.string());
  }

  // Returns the message about a text in which keys have other values; null removes a key.
  std::string Message(const char* text, const Json& changes) {
    Json root = Json::parse(text);
    root.merge_patch(changes);
    const auto config = Read(root.dump());
    return config ? "no error" : config.error().line();
  }

  void WriteWeights() { std::ofstream(folder_ / kHuggingFaceWeights) << "weights"; }

 private:
  std::filesystem::path folder_ = std::filesystem::path(testing::TempDir()) /
                                  testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(HuggingFace, ReadsPublishedFiles) {
  const ModelConfig llama = Read(kLlama).value();
  EXPECT_EQ(llama.name, "llama");
  EXPECT_EQ(llama.dim, 4096);
  EXPECT_EQ(llama.layers, 32);
  EXPECT_EQ(llama.vocabulary, 128256);
  EXPECT_EQ(llama.options.at("kv_heads"), "8");
  EXPECT_EQ(llama.options.at("rope_scaling"), "llama3");
  EXPECT_EQ(llama.options.at("rope_factor"), "8");
  const ModelConfig qwen3 = Read(kQwen3).value();
  EXPECT_EQ(qwen3.name, "qwen3");
  EXPECT_EQ(qwen3.options.at("head_dim"), "128");
  EXPECT_EQ(qwen3.options.at("tied"), "true");
  const ModelConfig deepseek = Read(kDeepseekV3).value();
  EXPECT_EQ(deepseek.name, "deepseek_v3");
  EXPECT_EQ(deepseek.options.at("query_rank"), "1536");
  EXPECT_EQ(deepseek.options.at("router_scale"), "2.5");
  EXPECT_EQ(deepseek.options.at("rope_scaling"), "yarn");
}

TEST_F(HuggingFace, WritesWhatItReads) {
  for (const char* const text :
       {kLlama, kQwen3, kMixtral, kQwen3Moe, kDeepseekV2, kDeepseekV3, kGpt2}) {
    const ModelConfig read = Read(text).value();
    const std::string written = HuggingFaceConfigText(read).value();
    const ModelConfig again = Read(written).value();
    EXPECT_EQ(HuggingFaceConfigText(again).value(), written);
    const Json before = Json::parse(text), after = Json::parse(written);
    for (const auto& [key, value] : after.items()) {
      const bool is_of_file = key == "torch_dtype" || key == "max_position_embeddings" ||
                              key == "n_positions" || key == "num_nextn_predict_layers";
      // The width of dense layers, where there are none.
      const bool is_unused = text == kQwen3Moe && key == "intermediate_size";
      if (!before.contains(key) || is_of_file || is_unused) continue;
      if (key == "rope_scaling" && before[key].contains("type")) {  // now called rope_type
        Json renamed = before[key];
        renamed["rope_type"] = renamed["type"];
        renamed.erase("type");
        EXPECT_EQ(value, renamed);
      } else {
        EXPECT_EQ(value, before[key]) << key;
      }
    }
  }
}

// Errors about values that do not fit each other name the keys of the file, not ours.
TEST_F(HuggingFace, AnInconsistentFileIsRefusedByItsOwnKeys) {
  const std::string inconsistent[][3] = {{kLlama, "num_key_value_heads", "5"},
                                         {kLlama, "rope_scaling.low_freq_factor", "9"},
                                         {kMixtral, "num_experts_per_tok", "9"},
                                         {kMixtral, "num_key_value_heads", "3"},
                                         {kDeepseekV3, "topk_group", "9"},
                                         {kDeepseekV3, "n_group", "7"},
                                         {kDeepseekV3, "qk_rope_head_dim", "63"},
                                         {kDeepseekV3, "v_head_dim", "900"},
                                         {kGpt2, "n_head", "7"},
                                         {kQwen3, "head_dim", "127"},
                                         {kLlama, "num_hidden_layers", "10001"}};
  for (const auto& [text, key, value] : inconsistent) {
    Json json = Json::parse(text);
    const std::size_t dot = key.find('.');
    if (dot == std::string::npos) {
      json[key] = Json::parse(value);
    } else {
      json[key.substr(0, dot)][key.substr(dot + 1)] = Json::parse(value);
    }
    const auto shape = ParseHuggingFaceShape(json.dump());
    ASSERT_FALSE(shape) << key;
    EXPECT_EQ(shape.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(shape.error().parameter, key) << shape.error().line();
    const std::string line = shape.error().line();
    EXPECT_TRUE(line.starts_with(key)) << line;
    for (const char* ours : {"model.", "`", "kv_heads ", "top_groups", "--"}) {
      EXPECT_EQ(line.find(ours), std::string::npos) << line;
    }
  }
}

TEST_F(HuggingFace, RefusesWhatAModelDoesNotSupport) {
  const auto expect = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find("config.json: "), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  };
  expect(Message(kLlama, {{"model_type", "bert"}}), "there are llama, gpt2, qwen3");
  expect(Message(kLlama, {{"model_type", nullptr}}), "model_type is missing");
  expect(Message(kLlama, {{"hidden_size", "wide"}}), "hidden_size: a whole number");
  expect(Message(kLlama, {{"hidden_size", -1}}), "hidden_size: a whole number");
  expect(Message(kLlama, {{"num_key_value_heads", 5}}),
         "num_key_value_heads 5 does not divide num_attention_heads 32");
  expect(Message(kLlama, {{"rms_norm_eps", {1, 2}}}), "rms_norm_eps: a number");
  expect(Message(kLlama, {{"head_dim", 0}}), "head_dim: a whole number from 1");
  expect(Message(kLlama, {{"num_key_value_heads", 0}}), "num_key_value_heads: a whole number");
  expect(Message(kLlama, {{"attention_bias", true}}), "attention_bias: 'true' is not supported");
  expect(Message(kLlama, {{"hidden_act", "gelu"}}), "only \"silu\"");
  expect(Message(kMixtral, {{"sliding_window", 4096}}), "sliding_window: '4096'");
  expect(Message(kMixtral, {{"num_experts_per_tok", 9}}),
         "num_experts_per_tok 9 is more than the 8 experts");
  expect(Message(kDeepseekV3, {{"topk_group", 9}}), "topk_group 9 is more than n_group 8");
  expect(Message(kDeepseekV2, {{"num_experts_per_tok", nullptr}}),
         "num_experts_per_tok: the key is missing");
  expect(Message(kDeepseekV2, {{"topk_method", "group_limited_greedy"}, {"n_group", nullptr}}),
         "n_group: the key is missing");
  expect(Message(kDeepseekV2, {{"norm_topk_prob", true}}), "norm_topk_prob: 'true'");
  expect(Message(kDeepseekV3, {{"scoring_func", "softmax"}}), "scoring_func");
  expect(Message(kLlama, {{"rope_scaling", {{"rope_type", "dynamic"}}}}),
         "rope_scaling: the type 'dynamic'");
  expect(Message(kLlama, {{"rope_scaling", {{"factor", {1}}}}}), "rope_scaling.factor: ");
  const auto text = Read("[1, 2]");
  ASSERT_FALSE(text);
  expect(text.error().line(), "it is not a JSON object");
}

// Weights of a kind that is not read are refused, but sizes of such a model can be used.
TEST_F(HuggingFace, RefusesQuantizedWeights) {
  EXPECT_EQ(Message(kDeepseekV3, Json::object()), "no error");
  WriteWeights();
  EXPECT_NE(Message(kDeepseekV3, Json::object()).find("quantization_config: quantized weights"),
            std::string::npos);
  EXPECT_EQ(Message(kDeepseekV3, {{"quantization_config", nullptr}}), "no error");
}

TEST_F(HuggingFace, MissingKeysHaveTheDefaultsOfTheClass) {
  const auto options = [&](const char* type) {
    return Read(Json{{"model_type", type}, {"num_experts_per_tok", 2}}.dump()).value().options;
  };
  const auto mixtral = options("mixtral");
  EXPECT_EQ(mixtral.at("rope_theta"), "1000000");
  EXPECT_EQ(mixtral.at("norm_epsilon"), "1e-05");
  EXPECT_EQ(mixtral.at("kv_heads"), "8");
  const auto deepseek = options("deepseek_v3");
  EXPECT_EQ(deepseek.at("normalize_top_k"), "true");
  EXPECT_EQ(deepseek.at("router_scale"), "2.5");
  EXPECT_EQ(deepseek.at("query_rank"), "1536");
  EXPECT_EQ(deepseek.at("shared_experts"), "1");
  EXPECT_EQ(options("deepseek_v2").at("shared_experts"), "2");
  EXPECT_EQ(options("qwen3_moe").at("experts"), "128");
}

// What the format cannot express is named, and only that.
TEST_F(HuggingFace, WritesOnlyWhatTheFormatExpresses) {
  using Options = std::map<std::string, std::string, std::less<>>;
  struct Case {
    const char* model;
    Options options;
    const char* lost;  // empty: the format expresses all
  };
  const std::vector<Case> cases = {
      {"llama", {}, ""},
      {"llama", {{"kv_heads", "2"}, {"head_dim", "6"}, {"tied", "true"}, {"dropout", "0.1"}}, ""},
      {"llama", {{"rope_scaling", "linear"}, {"rope_factor", "2"}}, ""},
      {"llama", {{"rope_scaling", "yarn"}, {"rope_factor", "4"}, {"rope_fast_turns", "16"}}, ""},
      {"llama", {{"rope_scaling", "yarn"}, {"rope_attention_factor", "1.5"}}, ""},
      {"llama", {{"rope_factor", "4"}}, ""},  // not used
      {"llama", {{"heads", "3"}, {"head_dim", "8"}}, "num_attention_heads: 3 does not divide"},
      {"qwen3", {{"rope_scaling", "yarn"}, {"rope_factor", "4"}}, ""},
      {"qwen3", {{"heads", "3"}, {"head_dim", "8"}}, ""},
      {"qwen3_moe", {{"dense_layers", "1"}, {"hidden", "40"}, {"expert_hidden", "24"}}, ""},
      {"qwen3_moe", {{"normalize_top_k", "false"}, {"balance", "none"}}, ""},
      {"qwen3_moe", {{"shared_experts", "1"}}, "model.shared_experts=1 (there it is 0)"},
      {"qwen3_moe", {{"router_score", "sigmoid"}}, "model.router_score=sigmoid (there it is soft"},
      {"qwen3_moe", {{"expert_groups", "2"}}, "model.expert_groups=2"},
      {"qwen3_moe", {{"router_scale", "2.5"}}, "model.router_scale=2.5"},
      {"qwen3_moe", {{"balance", "bias"}}, "model.balance=bias"},
      {"mixtral", {{"expert_hidden", "24"}, {"hidden", "40"}}, ""},
      {"mixtral", {{"dense_layers", "1"}}, "model.dense_layers=1 (there it is 0)"},
      {"mixtral", {{"normalize_top_k", "false"}}, "model.normalize_top_k=false"},
      {"mixtral", {{"router_scale", "2"}}, "model.router_scale=2"},
      {"mixtral", {{"expert_groups", "2"}, {"top_groups", "2"}}, "model.expert_groups=2"},
      {"mixtral", {{"shared_experts", "2"}}, "model.shared_experts=2"},
      {"deepseek_v2", {{"query_rank", "8"}, {"router_scale", "1.5"}, {"shared_experts", "0"}}, ""},
      {"deepseek_v2", {{"expert_groups", "2"}, {"rope_scaling", "linear"}}, ""},
      {"deepseek_v2", {{"normalize_top_k", "true"}}, "model.normalize_top_k=true"},
      {"deepseek_v2", {{"router_score", "sigmoid"}}, "model.router_score=sigmoid"},
      {"deepseek_v2", {{"heads", "3"}}, "num_attention_heads: 3 does not divide"},
      {"deepseek_v3", {{"rope_scaling", "linear"}, {"rope_factor", "2"}, {"predictor", "1"}}, ""},
      {"deepseek_v3", {{"rope_scaling", "yarn"}, {"rope_score_magnitude", "1"}}, ""},
      {"deepseek_v3", {{"normalize_top_k", "false"}, {"dense_layers", "0"}}, ""},
      {"deepseek_v3", {{"router_score", "softmax"}}, "model.router_score=softmax"},
      {"deepseek_v3", {{"balance", "none"}}, "model.balance=none (there it is bias)"},
      {"gpt2", {{"hidden", "7"}, {"tied", "false"}}, ""},
  };
  for (const auto& [model, options, lost] : cases) {
    ModelConfig config{.name = model, .dim = 32, .options = options};
    const auto text = HuggingFaceConfigText(config);
    const std::string message = text ? "" : text.error().line();
    SCOPED_TRACE(fmt::format("{} {}: {}", model, fmt::join(options, " "), message));
    EXPECT_EQ(text.has_value(), std::string_view(lost).empty());
    EXPECT_NE(message.find(lost), std::string::npos);
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

// Theirs is one term of the model that is top_k for a balanced load, ours one of 1 per layer.
TEST_F(HuggingFace, ConvertsTheCoefficientOfTheBalanceLoss) {
  for (const auto& [text, layers, top_k] :
       {std::tuple(kMixtral, 32, 2), std::tuple(kQwen3Moe, 48, 8)}) {
    for (const double coefficient : {0.0, 0.001, 0.02, 0.7}) {
      Json root = Json::parse(text);
      root["router_aux_loss_coef"] = coefficient;
      const ModelConfig read = Read(root.dump()).value();
      EXPECT_NEAR(std::stod(read.options.at("balance_loss")), coefficient * top_k / layers, 1e-15);
      const Json written = Json::parse(HuggingFaceConfigText(read).value());
      EXPECT_EQ(written["router_aux_loss_coef"], coefficient);
    }
  }
  ModelConfig none = Read(kMixtral).value();
  none.options["balance"] = "none";
  EXPECT_EQ(Json::parse(HuggingFaceConfigText(none).value())["router_aux_loss_coef"], 0);
}

TEST_F(HuggingFace, ReadsTheKeysOfNewerFiles) {
  Json root = Json::parse(kLlama);
  Json rope = root["rope_scaling"];
  rope["rope_theta"] = root["rope_theta"];
  root.erase("rope_scaling");
  root.erase("rope_theta");
  root["rope_parameters"] = rope;
  EXPECT_EQ(Read(root.dump()).value().options, Read(kLlama).value().options);
}

}  // namespace
}  // namespace penstock
