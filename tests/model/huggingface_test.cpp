// config.json is read as published, written back, and refused where a model does not support it.
#include "model/huggingface.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/model.h"

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

// Those of Qwen/Qwen3-0.6B.
constexpr const char* kQwen3 = R"({
  "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024, "intermediate_size": 3072,
  "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
  "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
  "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
  "tie_word_embeddings": true, "use_sliding_window": false, "vocab_size": 151936})";

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
    return config ? "no error" : config.error().message;
  }

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
}

TEST_F(HuggingFace, WritesWhatItReads) {
  for (const char* const text : {kLlama, kQwen3}) {
    const ModelConfig read = Read(text).value();
    const std::string written = HuggingFaceConfigText(read).value();
    const ModelConfig again = Read(written).value();
    EXPECT_EQ(HuggingFaceConfigText(again).value(), written);
    const Json before = Json::parse(text), after = Json::parse(written);
    for (const auto& [key, value] : after.items()) {
      const bool is_of_file = key == "torch_dtype" || key == "max_position_embeddings";
      if (!before.contains(key) || is_of_file) continue;
      EXPECT_EQ(value, before[key]) << key;
    }
  }
}

TEST_F(HuggingFace, RefusesWhatAModelDoesNotSupport) {
  const auto expect = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find("config.json: "), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  };
  expect(Message(kLlama, {{"model_type", "bert"}}), "'bert'; there are llama, qwen3");
  expect(Message(kLlama, {{"model_type", nullptr}}), "model_type is missing");
  expect(Message(kLlama, {{"hidden_size", nullptr}}), "hidden_size: the key is missing");
  expect(Message(kLlama, {{"hidden_size", "wide"}}), "hidden_size: a whole number");
  expect(Message(kLlama, {{"hidden_size", -1}}), "hidden_size: a whole number");
  expect(Message(kLlama, {{"num_key_value_heads", 5}}), "kv_heads 5");
  expect(Message(kLlama, {{"rms_norm_eps", {1, 2}}}), "rms_norm_eps: a number");
  expect(Message(kLlama, {{"attention_bias", true}}), "attention_bias: 'true' is not supported");
  expect(Message(kLlama, {{"hidden_act", "gelu"}}), "only \"silu\"");
  expect(Message(kLlama, {{"quantization_config", {{"bits", 4}}}}), "quantized");
  expect(Message(kLlama, {{"rope_scaling", {{"rope_type", "yarn"}}}}),
         "rope_scaling: the type 'yarn'");
  expect(Message(kLlama, {{"rope_scaling", {{"factor", {1}}}}}), "rope_scaling: factor");
  const auto text = Read("[1, 2");
  ASSERT_FALSE(text);
  expect(text.error().message, "it is not a JSON object");
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
