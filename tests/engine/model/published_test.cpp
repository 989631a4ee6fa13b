// Published sizes have the published numbers of parameters.
#include <gtest/gtest.h>

#include "graph/capture/shapes_only.h"
#include "model/model.h"

namespace penstock {
namespace {

struct Published {
  const char* name;
  ModelConfig config;
  std::int64_t parameters;
};

ModelConfig Config(const char* model, std::int64_t vocabulary, std::int64_t dim,
                   std::int64_t layers, std::map<std::string, std::string, std::less<>> options) {
  return {.name = model,
          .vocabulary = vocabulary,
          .dim = dim,
          .layers = layers,
          .options = std::move(options)};
}

using Options = std::map<std::string, std::string, std::less<>>;

Options Decoder(int heads, int kv_heads, int hidden) {
  return {{"heads", std::to_string(heads)},
          {"kv_heads", std::to_string(kv_heads)},
          {"hidden", std::to_string(hidden)}};
}

Options Qwen3(int heads, int hidden, bool tied) {
  Options options = Decoder(heads, 8, hidden);
  options["head_dim"] = "128";
  options["tied"] = tied ? "true" : "false";
  return options;
}

Options Tied(Options options) {
  options["tied"] = "true";
  return options;
}

Options With(Options options, const Options& more) {
  options.insert(more.begin(), more.end());
  return options;
}

Options Experts(int experts, int top_k, int hidden) {
  return {{"experts", std::to_string(experts)},
          {"top_k", std::to_string(top_k)},
          {"expert_hidden", std::to_string(hidden)}};
}

Options Qwen3Moe(int heads, int kv_heads, int expert_hidden) {
  return With(Decoder(heads, kv_heads, 1),
              With(Experts(128, 8, expert_hidden), {{"head_dim", "128"}}));
}

Options Deepseek(int heads, int hidden, const Options& more) {
  return With({{"heads", std::to_string(heads)},
               {"hidden", std::to_string(hidden)},
               {"kv_rank", "512"},
               {"plain_dim", "128"},
               {"rotary_dim", "64"},
               {"value_dim", "128"}},
              more);
}

ModelConfig Gpt2(std::int64_t dim, std::int64_t layers, const char* heads) {
  ModelConfig config = Config("gpt2", 50257, dim, layers, {{"heads", heads}});
  config.sequence = 1024;
  return config;
}

// The numbers are taken from the model cards and the published weights.
std::vector<Published> AllPublished() {
  return {
      {"Llama-2 7B", Config("llama", 32000, 4096, 32, Decoder(32, 32, 11008)), 6'738'415'616},
      {"Llama-2 70B", Config("llama", 32000, 8192, 80, Decoder(64, 8, 28672)), 68'976'648'192},
      {"Llama-3 8B", Config("llama", 128256, 4096, 32, Decoder(32, 8, 14336)), 8'030'261'248},
      {"Llama-3 70B", Config("llama", 128256, 8192, 80, Decoder(64, 8, 28672)), 70'553'706'496},
      {"Llama-3.1 405B", Config("llama", 128256, 16384, 126, Decoder(128, 8, 53248)),
       405'853'388'800},
      {"Llama-3.2 1B", Config("llama", 128256, 2048, 16, Tied(Decoder(32, 8, 8192))),
       1'235'814'400},
      {"Qwen3 0.6B", Config("qwen3", 151936, 1024, 28, Qwen3(16, 3072, true)), 596'049'920},
      {"Qwen3 8B", Config("qwen3", 151936, 4096, 36, Qwen3(32, 12288, false)), 8'190'735'360},
      {"Qwen3 32B", Config("qwen3", 151936, 5120, 64, Qwen3(64, 25600, false)), 32'762'123'264},
      {"Mixtral 8x7B",
       Config("mixtral", 32000, 4096, 32, With(Decoder(32, 8, 14336), Experts(8, 2, 14336))),
       46'702'792'704},
      {"Qwen3-30B-A3B", Config("qwen3_moe", 151936, 2048, 48, Qwen3Moe(32, 4, 768)),
       30'532'122'624},
      {"Qwen3-235B-A22B", Config("qwen3_moe", 151936, 4096, 94, Qwen3Moe(64, 4, 1536)),
       235'093'634'560},
      {"DeepSeek-V2-Lite",
       Config("deepseek_v2", 102400, 2048, 27,
              Deepseek(16, 10944, With(Experts(64, 6, 1408), {{"shared_experts", "2"}}))),
       15'706'484'224},
      {"DeepSeek-V3",
       Config("deepseek_v3", 129280, 7168, 61,
              Deepseek(128, 18432,
                       With(Experts(256, 8, 2048), {{"query_rank", "1536"},
                                                    {"dense_layers", "3"},
                                                    {"expert_groups", "8"},
                                                    {"top_groups", "4"}}))),
       671'026'419'200},
      {"GPT-2", Gpt2(768, 12, "12"), 124'439'808},
      {"GPT-2 XL", Gpt2(1600, 48, "25"), 1'557'611'200},
  };
}

TEST(PublishedModels, HaveTheirNumbersOfParameters) {
  const ShapesOnly shapes;
  for (const Published& published : AllPublished()) {
    const LayerRange all{0, published.config.layers, true, true};
    const auto model = BuildStage(published.config, all);
    ASSERT_TRUE(model) << published.name << ": " << model.error().line();
    std::int64_t parameters = 0;
    for (const torch::Tensor& parameter : (*model)->parameters()) parameters += parameter.numel();
    EXPECT_EQ(parameters, published.parameters) << published.name;
  }
}

}  // namespace
}  // namespace penstock
