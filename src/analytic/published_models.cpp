#include "analytic/published_models.h"

#include <fmt/ranges.h>

#include "analytic/same_name.h"
#include "base/text/nearest.h"
#include "base/text/quote.h"

namespace penstock {
namespace {

constexpr std::int64_t kLlama2Words = 32000, kLlama3Words = 128256, kQwen3Words = 151936;

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

ModelShape Gpt2Shape(const char* name, std::int64_t dim, std::int64_t layers, std::int64_t heads) {
  ModelShape shape = Decoder(name, 50257, dim, layers, {heads, heads, dim / heads}, 4 * dim);
  shape.architecture = Architecture::kGpt2;
  shape.positions = 1024;
  shape.tied = true;
  return shape;
}

std::vector<ModelShape> MakeModels() {
  using Balance = ExpertShape::Balance;
  const ExpertShape v2_lite{64, 6, 1408, 2, 1, false, false, Balance::kLoss};
  const ExpertShape v2{160, 6, 1536, 2, 1, false, true, Balance::kLoss};
  const ExpertShape v3{256, 8, 2048, 1, 3, true, true, Balance::kBias};
  return {
      Decoder("llama-2-7b", kLlama2Words, 4096, 32, {32, 32, 128}, 11008),
      Decoder("llama-2-13b", kLlama2Words, 5120, 40, {40, 40, 128}, 13824),
      Decoder("llama-2-70b", kLlama2Words, 8192, 80, {64, 8, 128}, 28672),
      Tied(Decoder("llama-3.2-1b", kLlama3Words, 2048, 16, {32, 8, 64}, 8192)),
      Tied(Decoder("llama-3.2-3b", kLlama3Words, 3072, 28, {24, 8, 128}, 8192)),
      Decoder("llama-3-8b", kLlama3Words, 4096, 32, {32, 8, 128}, 14336),
      Decoder("llama-3-70b", kLlama3Words, 8192, 80, {64, 8, 128}, 28672),
      Decoder("llama-3-405b", kLlama3Words, 16384, 126, {128, 8, 128}, 53248),
      Tied(Qwen3("qwen3-0.6b", 1024, 28, {16, 8, 128}, 3072)),
      Tied(Qwen3("qwen3-1.7b", 2048, 28, {16, 8, 128}, 6144)),
      Tied(Qwen3("qwen3-4b", 2560, 36, {32, 8, 128}, 9728)),
      Qwen3("qwen3-8b", 4096, 36, {32, 8, 128}, 12288),
      Qwen3("qwen3-14b", 5120, 40, {40, 8, 128}, 17408),
      Qwen3("qwen3-32b", 5120, 64, {64, 8, 128}, 25600),
      WithExperts(Qwen3("qwen3-30b-a3b", 2048, 48, {32, 4, 128}, 6144), {128, 8, 768}),
      WithExperts(Qwen3("qwen3-235b-a22b", 4096, 94, {64, 4, 128}, 12288), {128, 8, 1536}),
      WithExperts(Decoder("mixtral-8x7b", 32000, 4096, 32, {32, 8, 128}, 14336), {8, 2, 14336}),
      WithExperts(Decoder("mixtral-8x22b", 32000, 6144, 56, {48, 8, 128}, 16384), {8, 2, 16384}),
      Deepseek("deepseek-v2-lite", 102400, 2048, 27, 16, 10944, 0, v2_lite),
      Deepseek("deepseek-v2", 102400, 5120, 60, 128, 12288, 1536, v2),
      Deepseek("deepseek-v3", 129280, 7168, 61, 128, 18432, 1536, v3),
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
