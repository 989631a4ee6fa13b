// config.json is read as the transformers package reads it, or refused by the name of a key.
#include "huggingface/config_file.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

using Json = nlohmann::json;

Json Llama(const Json& changes) {
  Json root = {{"model_type", "llama"}, {"num_hidden_layers", 2}};
  root.update(changes);
  return root;
}

// Returns the message about a file, whose rope_parameters are read, too.
std::string MessageOfText(const std::string& text) {
  auto file = ParseConfigFile(text);
  if (!file) return file.error().line();
  if (file->type == nullptr || file->type->rope_theta == 0) return "no error";
  const auto rope = RopeParametersOf(*file);
  return rope ? "no error" : rope.error().line();
}

std::string Message(const Json& root) { return MessageOfText(root.dump()); }

Json Rope(const Json& changes = Json::object()) {
  ConfigFile file = ParseConfigFile(Llama(changes).dump()).value();
  return RopeParametersOf(file).value();
}

TEST(ConfigFile, RopeHasOldAndNewForms) {
  const Json linear = {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 7.0}};
  const Json old = {{"type", "linear"}, {"factor", 2.0}};
  EXPECT_EQ(Rope({{"rope_parameters", linear}}), linear);
  EXPECT_EQ(Rope({{"rope_scaling", old}, {"rope_theta", 7}}), linear);
  EXPECT_EQ(Rope({{"rope_scaling", linear}, {"rope_theta", 9}}), linear);
  // The old key replaces the new one as a whole, unless it is empty.
  EXPECT_EQ(Rope({{"rope_scaling", old}, {"rope_parameters", linear}}).at("rope_theta"), 1e4);
  EXPECT_EQ(Rope({{"rope_scaling", Json::object()}, {"rope_parameters", linear}}), linear);
  EXPECT_EQ(Rope(), Json({{"rope_type", "default"}, {"rope_theta", 1e4}}));
}

TEST(ConfigFile, RopeIsCompletedByOtherKeys) {
  const Json llama3 = {
      {"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 1}, {"high_freq_factor", 4}};
  constexpr const char* kOriginal = "original_max_position_embeddings";
  EXPECT_EQ(Rope({{"rope_scaling", llama3}}).at(kOriginal), 2048);  // the class's longest sequence
  EXPECT_EQ(Rope({{"rope_scaling", llama3}, {"max_position_embeddings", 99}}).at(kOriginal), 99);
  EXPECT_EQ(Rope({{"rope_scaling", llama3}, {kOriginal, 64}}).at(kOriginal), 64);
  const Json yarn = Rope({{"rope_scaling",
                           {{"type", "yarn"},
                            {"factor", 4},
                            {"beta_fast", nullptr},
                            {"beta_slow", 0},
                            {"attention_factor", 1.5}}}});
  EXPECT_EQ(yarn.at("beta_fast"), 32);
  EXPECT_EQ(yarn.at("beta_slow"), 1);
  EXPECT_EQ(yarn.at("attention_factor"), 1.5);
}

TEST(ConfigFile, FaultsNameTheKey) {
  const auto scaling = [](const Json& value) { return Llama({{"rope_scaling", value}}); };
  const Json layers = {"full_attention", "full_attention", "full_attention"};
  const std::vector<std::pair<Json, const char*>> cases = {
      {scaling("linear"), "rope_scaling: '\"linear\"' is not an object"},
      {scaling({{"type", "linear"}}), "rope_scaling.factor: the key is missing"},
      {scaling({{"type", "yarn"}}), "rope_scaling.factor: the key is missing"},
      {scaling({{"type", "yarn"}, {"factor", nullptr}}), "rope_scaling.factor: a number"},
      {scaling({{"type", "llama3"}, {"factor", 2}}), "rope_scaling.low_freq_factor: "},
      {scaling({{"type", "longrope"}, {"factor", 2}}), "rope_scaling: the type 'longrope'"},
      {scaling({{"rope_type", nullptr}}), "rope_scaling.rope_type: a text"},
      {scaling({{"type", "yarn"}, {"factor", 2}, {"truncate", false}}), "rope_scaling.truncate: "},
      {scaling({{"type", "yarn"}, {"factor", 2}, {"attention_factor", 0}}), "attention_factor"},
      {scaling({{"partial_rotary_factor", 0.5}}), "partial_rotary_factor: '0.5'"},
      {scaling({{"full_attention", {{"rope_theta", 1}}}}), "full_attention: parameters of one"},
      {Llama({{"partial_rotary_factor", 0.5}}), "partial_rotary_factor: '0.5'"},
      {Llama({{"rope_theta", nullptr}}), "rope_theta: a number"},
      {Llama({{"layer_types", layers}}), "layer_types: only \"full_attention\""},
      {Llama({{"layer_types", {"full_attention", "sliding_attention"}}}), "layer_types"},
      {Llama({{"num_key_value_heads", 0}}), "num_key_value_heads: a whole number"},
      {Llama({{"hidden_size", nullptr}}), "hidden_size: a whole number"},
      {Llama({{"hidden_size", 65}, {"num_attention_heads", 2}}), "num_attention_heads: 2 does not"},
      {Llama({{"tie_word_embeddings", 1}}), "tie_word_embeddings: true or false"},
      {Llama({{"per_layer_config", {{"0", {{"head_dim", 2}}}}}}), "per_layer_config"},
      {{{"model_type", "deepseek_v3"}, {"num_attention_heads", 16}}, "num_key_value_heads: '128'"},
      {{{"model_type", "deepseek_v3"}, {"head_dim", 128}}, "head_dim: '128' is not qk_rope"},
      {{{"model_type", "qwen3"}, {"head_dim", nullptr}}, "head_dim: a whole number"},
      {{{"model_type", "gpt2"}, {"n_inner", 0}}, "n_inner: a whole number"},
      {{{"model_type", "gpt2"}, {"layer_types", Json::array()}}, "layer_types: only"},
      {{{"model_type", "deepseek_v3"},
        {"rope_scaling", {{"type", "linear"}, {"factor", 2}, {"mscale_all_dim", 1}}}},
       "mscale_all_dim: it is only supported with the type yarn"},
  };
  for (const auto& [root, part] : cases) {
    const std::string message = Message(root);
    EXPECT_NE(message.find(part), std::string::npos) << root.dump() << ": " << message;
  }
  EXPECT_EQ(MessageOfText(R"({"model_type": "llama", "vocab_size": 8, "vocab_size": 9})"),
            "the name 'vocab_size' appears twice");
}

TEST(ConfigFile, AnyValueOfAnyKeyHasOneLine) {
  const std::vector<Json> values = {nullptr,
                                    true,
                                    -1,
                                    0,
                                    std::numeric_limits<std::uint64_t>::max(),
                                    1e300,
                                    "",
                                    "a\nb\x1b[31m",
                                    std::string(100000, 'x'),
                                    Json::array(),
                                    Json::array({1, "a", nullptr, {{"b", {1, 2}}}}),
                                    {{"rope_type", {1}}, {"a\nb", Json::object()}}};
  for (const ConfigClass& type : ConfigClasses()) {
    std::vector<std::string> names = {
        "rope_scaling",     "rope_theta", "partial_rotary_factor",           "layer_types",
        "per_layer_config", "model_type", "original_max_position_embeddings"};
    for (const ClassKey& key : type.keys) names.emplace_back(key.name);
    for (const std::string& name : names) {
      for (const Json& value : values) {
        const std::string message = Message(Json{{"model_type", type.model_type}, {name, value}});
        EXPECT_EQ(message.find_first_of("\n\x1b"), std::string::npos) << message;
        EXPECT_LT(message.size(), 300) << message;
      }
    }
  }
  EXPECT_NE(MessageOfText(std::string(100000, '[')), "no error");
  const std::string deep = std::string(50000, '[') + std::string(50000, ']');
  EXPECT_NE(MessageOfText(R"({"model_type": "llama", "hidden_act": )" + deep + "}"), "no error");
}

TEST(ConfigFile, UnknownKeysAreNamed) {
  ConfigFile file = ParseConfigFile(Llama({{"num_hidden_layer", 9},
                                           {"initializer_range", 1},
                                           {"temperature", 2},
                                           {"rope_scaling", {{"factor", 2}}}})
                                        .dump())
                        .value();
  ASSERT_TRUE(RopeParametersOf(file));
  EXPECT_EQ(file.unknown, (std::vector<std::string>{"num_hidden_layer", "rope_scaling.factor"}));
  testing::internal::CaptureStderr();
  ReportUnknownKeys(file, "a\nb");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "penstock: a\\nb: keys without effect: 'num_hidden_layer' (did you mean "
            "'num_hidden_layers'?), 'rope_scaling.factor'\n");
}

TEST(ConfigFile, AliasesCount) {
  const auto experts = [](const Json& root) { return ParseConfigFile(root.dump()).value().values; };
  EXPECT_EQ(experts({{"model_type", "mixtral"}, {"num_local_experts", 4}, {"num_experts", 6}})
                .at("num_local_experts"),
            6);
  EXPECT_EQ(experts({{"model_type", "qwen3_moe"}, {"num_local_experts", 4}, {"num_experts", 6}})
                .at("num_experts"),
            4);
  EXPECT_EQ(experts({{"model_type", "gpt2"}, {"hidden_size", 24}}).at("n_embd"), 24);
}

}  // namespace
}  // namespace penstock
