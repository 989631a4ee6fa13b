#include "cost_model/published_models.h"

#include <fmt/ranges.h>

#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "cost_model/same_name.h"

namespace penstock {
namespace {

constexpr std::int64_t kLlama2Words = 32000, kLlama3Words = 128256, kQwen3Words = 151936;
constexpr std::int64_t kQwen2Words = 152064, kTekken = 131072, kGemma3Words = 262208;

struct Heads {
  std::int64_t heads, kv_heads, head_dim;
};

ModelShape Decoder(const char* name, std::int64_t vocabulary, std::int64_t dim, std::int64_t layers,
                   Heads heads, std::int64_t hidden) {
  ModelShape shape;
  shape.name = name;
  shape.vocabulary = vocabulary;
  shape.dim = dim;
  shape.layers = layers;
  shape.heads = heads.heads;
  shape.kv_heads = heads.kv_heads;
  shape.head_dim = heads.head_dim;
  shape.hidden = hidden;
  return shape;
}

ModelShape Tied(ModelShape shape) {
  shape.tied = true;
  return shape;
}

ModelShape Qwen3(const char* name, std::int64_t dim, std::int64_t layers, Heads heads,
                 std::int64_t hidden) {
  ModelShape shape = Decoder(name, kQwen3Words, dim, layers, heads, hidden);
  shape.qk_norm = true;
  return shape;
}

ModelShape WithExperts(ModelShape shape, const ExpertShape& experts) {
  shape.experts = experts;
  return shape;
}

ModelShape Deepseek(const char* name, std::int64_t vocabulary, std::int64_t dim,
                    std::int64_t layers, std::int64_t heads, std::int64_t hidden,
                    std::int64_t query_rank, const ExpertShape& experts) {
  ModelShape shape = Decoder(name, vocabulary, dim, layers, {heads, heads, 0}, hidden);
  shape.latent = {query_rank, 512, 128, 64, 128};
  shape.experts = experts;
  return shape;
}

// Qwen2 and Qwen2.5 have the same sizes.
ModelShape Qwen2(const char* name, std::int64_t dim, std::int64_t layers, Heads heads,
                 std::int64_t hidden, std::int64_t vocabulary = kQwen2Words) {
  ModelShape shape = Decoder(name, vocabulary, dim, layers, heads, hidden);
  shape.qkv_biases = true;
  return shape;
}

// Every fourth layer has gated attention, the others have gated delta nets.
ModelShape Qwen3Next() {
  ModelShape shape = Qwen3("qwen3-next-80b-a3b", 2048, 48, {16, 2, 256}, 5120);
  shape.query_gate = true;
  shape.delta = {16, 32, 128};
  shape.full_every = 4;
  shape.experts = {512, 10, 512, 1};
  shape.experts->shared_gate = true;
  return shape;
}

// Every sixth layer attends to all tokens. For models that also read images: their text model.
ModelShape Gemma3(const char* name, std::int64_t vocabulary, std::int64_t dim, std::int64_t layers,
                  Heads heads, std::int64_t hidden, std::int64_t window) {
  ModelShape shape = Decoder(name, vocabulary, dim, layers, heads, hidden);
  shape.tied = shape.qk_norm = shape.norms_outputs = true;
  shape.window = window;
  shape.full_every = 6;
  return shape;
}

// Every second layer attends to 128 tokens.
ModelShape GptOss(const char* name, std::int64_t layers, std::int64_t experts) {
  ModelShape shape = Decoder(name, 201088, 2880, layers, {64, 8, 64}, 2880);
  shape.window = 128;
  shape.full_every = 2;
  shape.qkv_biases = shape.output_bias = shape.sinks = true;
  shape.experts = {experts, 4, 2880};
  shape.experts->biases = true;
  return shape;
}

// Layers of Mamba-2, attention without positions, and feed-forward parts or experts with the square
// of ReLU, each with a norm and a residual.
ModelShape Nemotron(const char* name, std::int64_t dim, const char* pattern, Heads heads,
                    std::int64_t hidden, const MambaShape& mamba) {
  const auto layers = static_cast<std::int64_t>(std::string_view(pattern).size());
  ModelShape shape = Decoder(name, kTekken, dim, layers, heads, hidden);
  shape.pattern = pattern;
  shape.mamba = mamba;
  shape.gated = false;
  shape.has_no_positions = true;
  return shape;
}

ModelShape Nemotron3(const char* name, std::int64_t dim, const char* pattern, Heads heads,
                     const MambaShape& mamba, const ExpertShape& experts,
                     std::int64_t shared_hidden, std::int64_t latent) {
  ModelShape shape = Nemotron(name, dim, pattern, heads, experts.hidden, mamba);
  shape.experts = experts;
  shape.experts->shared_hidden = shared_hidden;
  shape.experts->latent = latent;
  shape.predictor_pattern = "*E";
  shape.shared_predictors = true;
  return shape;
}

// Nemotron 3 Nano 3.5, whose predictor runs twice.
ModelShape Lightning(ModelShape nano) {
  nano.name = "nemotron-3.5-lightning";
  nano.predictors = 2;
  return nano;
}

constexpr const char* kNanoPattern = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME";
constexpr const char* kSuperPattern =
    "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME";
constexpr const char* kUltraPattern =
    "MEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*"
    "EMEMEMEM*EMEMEMEME";
constexpr const char* kNemotronHPattern = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-";
constexpr const char* kNemotronH56Pattern =
    "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-"
    "M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-";

ModelShape Gpt2Shape(const char* name, std::int64_t dim, std::int64_t layers, std::int64_t heads) {
  ModelShape shape = Decoder(name, 50257, dim, layers, {heads, heads, dim / heads}, 4 * dim);
  shape.architecture = Architecture::kGpt2;
  shape.positions = 1024;
  shape.tied = true;
  return shape;
}

std::vector<ModelShape> MakeModels() {
  using Balance = ExpertShape::Balance;
  const ExpertShape v2_lite{64, 6, 1408, 2, 1, 1, false, false, Balance::kLoss};
  const ExpertShape v2{160, 6, 1536, 2, 1, 1, false, true, Balance::kLoss};
  const ExpertShape v3{256, 8, 2048, 1, 3, 1, true, true, Balance::kBias};
  const ExpertShape kimi{384, 8, 2048, 1, 1, 1, true, true, Balance::kBias};
  const ExpertShape nano{128, 6, 1856, 1, 0, 1, true, true, Balance::kBias};
  const ExpertShape super{512, 22, 2688, 1, 0, 1, true, true, Balance::kBias};
  const ExpertShape ultra{512, 22, 5120, 1, 0, 1, true, true, Balance::kBias};
  const ModelShape nemotron_3_nano = Nemotron3("nemotron-3-nano", 2688, kNanoPattern, {32, 2, 128},
                                               {64, 64, 128, 8}, nano, 3712, 0);
  return {
      Decoder("llama-2-7b", kLlama2Words, 4096, 32, {32, 32, 128}, 11008),
      Decoder("llama-2-13b", kLlama2Words, 5120, 40, {40, 40, 128}, 13824),
      Decoder("llama-2-70b", kLlama2Words, 8192, 80, {64, 8, 128}, 28672),
      Tied(Decoder("llama-3.2-1b", kLlama3Words, 2048, 16, {32, 8, 64}, 8192)),
      Tied(Decoder("llama-3.2-3b", kLlama3Words, 3072, 28, {24, 8, 128}, 8192)),
      Decoder("llama-3-8b", kLlama3Words, 4096, 32, {32, 8, 128}, 14336),
      Decoder("llama-3-70b", kLlama3Words, 8192, 80, {64, 8, 128}, 28672),
      Decoder("llama-3-405b", kLlama3Words, 16384, 126, {128, 8, 128}, 53248),
      Tied(Qwen2("qwen2.5-0.5b", 896, 24, {14, 2, 64}, 4864, kQwen3Words)),
      Tied(Qwen2("qwen2.5-1.5b", 1536, 28, {12, 2, 128}, 8960, kQwen3Words)),
      Tied(Qwen2("qwen2.5-3b", 2048, 36, {16, 2, 128}, 11008, kQwen3Words)),
      Qwen2("qwen2.5-7b", 3584, 28, {28, 4, 128}, 18944),
      Qwen2("qwen2.5-14b", 5120, 48, {40, 8, 128}, 13824),
      Qwen2("qwen2.5-32b", 5120, 64, {40, 8, 128}, 27648),
      Qwen2("qwen2.5-72b", 8192, 80, {64, 8, 128}, 29568),
      Tied(Qwen3("qwen3-0.6b", 1024, 28, {16, 8, 128}, 3072)),
      Tied(Qwen3("qwen3-1.7b", 2048, 28, {16, 8, 128}, 6144)),
      Tied(Qwen3("qwen3-4b", 2560, 36, {32, 8, 128}, 9728)),
      Qwen3("qwen3-8b", 4096, 36, {32, 8, 128}, 12288),
      Qwen3("qwen3-14b", 5120, 40, {40, 8, 128}, 17408),
      Qwen3("qwen3-32b", 5120, 64, {64, 8, 128}, 25600),
      WithExperts(Qwen3("qwen3-30b-a3b", 2048, 48, {32, 4, 128}, 6144), {128, 8, 768}),
      WithExperts(Qwen3("qwen3-235b-a22b", 4096, 94, {64, 4, 128}, 12288), {128, 8, 1536}),
      Qwen3Next(),
      Gemma3("gemma-3-1b", 262144, 1152, 26, {4, 1, 256}, 6912, 512),
      Gemma3("gemma-3-4b", kGemma3Words, 2560, 34, {8, 4, 256}, 10240, 1024),
      Gemma3("gemma-3-12b", kGemma3Words, 3840, 48, {16, 8, 256}, 15360, 1024),
      Gemma3("gemma-3-27b", kGemma3Words, 5376, 62, {32, 16, 128}, 21504, 1024),
      Decoder("mistral-7b", 32768, 4096, 32, {32, 8, 128}, 14336),
      Decoder("mistral-nemo-12b", kTekken, 5120, 40, {32, 8, 128}, 14336),
      Decoder("mistral-small-24b", kTekken, 5120, 40, {32, 8, 128}, 32768),
      Decoder("mistral-large-123b", 32768, 12288, 88, {96, 8, 128}, 28672),
      WithExperts(Decoder("mixtral-8x7b", 32000, 4096, 32, {32, 8, 128}, 14336), {8, 2, 14336}),
      WithExperts(Decoder("mixtral-8x22b", 32000, 6144, 56, {48, 8, 128}, 16384), {8, 2, 16384}),
      Deepseek("deepseek-v2-lite", 102400, 2048, 27, 16, 10944, 0, v2_lite),
      Deepseek("deepseek-v2", 102400, 5120, 60, 128, 12288, 1536, v2),
      Deepseek("deepseek-v3", 129280, 7168, 61, 128, 18432, 1536, v3),
      Deepseek("kimi-k2", 163840, 7168, 61, 64, 18432, 1536, kimi),
      GptOss("gpt-oss-20b", 24, 32),
      GptOss("gpt-oss-120b", 36, 128),
      Nemotron("nemotron-h-8b", 4096, kNemotronHPattern, {32, 8, 128}, 21504, {128, 64, 128, 8}),
      Nemotron("nemotron-h-56b", 8192, kNemotronH56Pattern, {64, 8, 128}, 32768, {256, 64, 256, 8}),
      nemotron_3_nano,
      Lightning(nemotron_3_nano),
      Nemotron3("nemotron-3-super", 4096, kSuperPattern, {32, 2, 128}, {128, 64, 128, 8}, super,
                5376, 1024),
      Nemotron3("nemotron-3-ultra", 8192, kUltraPattern, {64, 2, 128}, {256, 64, 128, 8}, ultra,
                10240, 2048),
      Gpt2Shape("gpt2", 768, 12, 12),
      Gpt2Shape("gpt2-medium", 1024, 24, 16),
      Gpt2Shape("gpt2-large", 1280, 36, 20),
      Gpt2Shape("gpt2-xl", 1600, 48, 25),
  };
}

}  // namespace

const std::vector<ModelShape>& PublishedModels() {
  static const auto& models = *new std::vector<ModelShape>(MakeModels());
  return models;
}

std::vector<std::string_view> PublishedModelNames() {
  std::vector<std::string_view> names;
  for (const ModelShape& model : PublishedModels()) names.push_back(model.name);
  return names;
}

Result<ModelShape> FindPublishedModel(std::string_view name) {
  for (const ModelShape& model : PublishedModels()) {
    if (IsSameName(model.name, name)) return model;
  }
  const std::vector<std::string_view> names = PublishedModelNames();
  return NotFound(
      "no model is called {}; {}", Quote(name),
      DidYouMean(name, names,
                 fmt::format("give a config.json, or one of {}", fmt::join(names, ", "))));
}

}  // namespace penstock
