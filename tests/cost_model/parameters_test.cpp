// Models have the published numbers of parameters.
#include "cost_model/parameters.h"

#include <gtest/gtest.h>

#include "cost_model/published_models.h"
#include "cost_model/stage_layers.h"
#include "tests/results.h"

namespace penstock {
namespace {

struct Published {
  const char* name;
  double parameters;
};

// The numbers of the model cards and the published weights, as in
// tests/engine/model/published_test.cpp.
constexpr Published kPublished[] = {
    {"llama-2-7b", 6'738'415'616},
    {"llama-2-13b", 13'015'864'320},
    {"llama-2-70b", 68'976'648'192},
    {"llama-3-8b", 8'030'261'248},
    {"llama-3-70b", 70'553'706'496},
    {"llama-3-405b", 405'853'388'800},
    {"llama-3.2-1b", 1'235'814'400},
    {"llama-3.2-3b", 3'212'749'824},
    {"qwen3-0.6b", 596'049'920},
    {"qwen3-1.7b", 1'720'574'976},
    {"qwen3-4b", 4'022'468'096},
    {"qwen3-8b", 8'190'735'360},
    {"qwen3-14b", 14'768'307'200},
    {"qwen3-32b", 32'762'123'264},
    {"qwen3-30b-a3b", 30'532'122'624},
    {"qwen3-235b-a22b", 235'093'634'560},
    {"mixtral-8x7b", 46'702'792'704},
    {"mixtral-8x22b", 140'620'634'112},
    {"deepseek-v2-lite", 15'706'484'224},
    {"deepseek-v2", 235'741'434'880},
    {"deepseek-v3", 671'026'419'200},
    {"gpt2", 124'439'808},
    {"gpt2-medium", 354'823'168},
    {"gpt2-large", 774'030'080},
    {"gpt2-xl", 1'557'611'200},
    {"qwen2.5-0.5b", 494'032'768},
    {"qwen2.5-1.5b", 1'543'714'304},
    {"qwen2.5-3b", 3'085'938'688},
    {"qwen2.5-7b", 7'615'616'512},
    {"qwen2.5-14b", 14'770'033'664},
    {"qwen2.5-32b", 32'763'876'352},
    {"qwen2.5-72b", 72'706'203'648},
    {"gemma-3-1b", 999'885'952},
    {"gemma-3-4b", 3'880'263'168},
    {"gemma-3-12b", 11'766'034'176},
    {"gemma-3-27b", 27'009'346'304},
    {"mistral-7b", 7'248'023'552},
    {"mistral-nemo-12b", 12'247'782'400},
    {"mistral-small-24b", 23'572'403'200},
    {"mistral-large-123b", 122'610'069'504},
    {"gpt-oss-20b", 20'914'757'184},
    {"gpt-oss-120b", 116'829'156'672},
};

// The model cards round these, in billions.
constexpr Published kRounded[] = {
    {"qwen3-next-80b-a3b", 79.7}, {"kimi-k2", 1026.4},
    {"nemotron-h-8b", 8.1},       {"nemotron-h-56b", 56.3},
    {"nemotron-3-nano", 31.6},    {"nemotron-3-super", 120.7},
    {"nemotron-3-ultra", 550},    {"nemotron-3.5-lightning", 31.6},
};

TEST(Parameters, AreAsManyAsPublished) {
  EXPECT_EQ(std::size(kPublished) + std::size(kRounded), PublishedModels().size());
  for (const Published& published : kPublished) {
    const auto shape = ValueOf(FindPublishedModel(published.name));
    EXPECT_TRUE(CheckShape(shape)) << published.name;
    EXPECT_EQ(ModelParameters(shape), published.parameters) << published.name;
  }
  for (const Published& rounded : kRounded) {
    const ModelShape shape = FindPublishedModel(rounded.name).value();
    EXPECT_TRUE(CheckShape(shape)) << rounded.name;
    EXPECT_NEAR(ModelParameters(shape) / 1e9 / rounded.parameters, 1, 0.003) << rounded.name;
  }
}

// Nemotron 3.5 Lightning has 32.9 billion parameters with its predictor, which runs twice.
TEST(Parameters, OfAPredictorThatRunsTwiceCountOnce) {
  const ModelShape shape = FindPublishedModel("nemotron-3.5-lightning").value();
  LayerRange all = SplitLayers(shape.layers, 1)->front();
  all.predictors = shape.predictors;
  EXPECT_NEAR(ParametersOfStage(shape, all, {}).all() / 1e9, 32.9, 0.02);
}

// The technical reports round them: Qwen3 has 3.3 and 22 billion, DeepSeek-V3 has 37, Mixtral 13.
TEST(Parameters, OfATokenAreAsManyAsPublished) {
  const auto active = [](const char* name) {
    const ModelShape shape = FindPublishedModel(name).value();
    double parameters = ModelParameters(shape);
    for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
      if (!shape.has_experts(layer)) continue;
      const auto experts = static_cast<double>(shape.experts->experts);
      const auto chosen = static_cast<double>(shape.experts->top_k);
      parameters -= (1 - chosen / experts) * ExpertParameters(shape, layer);
    }
    return parameters / 1e9;
  };
  EXPECT_NEAR(active("qwen3-30b-a3b"), 3.3, 0.1);
  EXPECT_NEAR(active("qwen3-235b-a22b"), 22, 0.3);
  EXPECT_NEAR(active("deepseek-v3"), 37, 0.6);
  EXPECT_NEAR(active("mixtral-8x7b"), 12.9, 0.1);
  EXPECT_EQ(active("llama-3-8b"), 8.030261248);
  EXPECT_NEAR(active("gpt-oss-120b"), 5.1, 0.7);  // without the embedding
  EXPECT_NEAR(active("kimi-k2"), 32, 1);
  EXPECT_NEAR(active("nemotron-3-nano"), 3.6, 0.1);
  EXPECT_NEAR(active("nemotron-3-super"), 12.7, 0.2);
  EXPECT_NEAR(active("qwen3-next-80b-a3b"), 3.9, 0.3);
}

TEST(Parameters, OfTheStagesAddUpToThoseOfTheModel) {
  for (const ModelShape& shape : PublishedModels()) {
    const auto stages = ValueOf(SplitLayers(shape.layers, 5));
    double sum = 0;
    for (const LayerRange& stage : stages) sum += ParametersOfStage(shape, stage, {}).all();
    const double copy =
        shape.tied ? static_cast<double>(shape.vocabulary) * static_cast<double>(shape.dim) : 0;
    EXPECT_EQ(sum, ModelParameters(shape) + copy) << shape.name;
  }
}

TEST(PublishedModels, SuggestsTheNearestName) {
  EXPECT_EQ(LineOf(FindPublishedModel("llama3-70b")),
            "no model is called 'llama3-70b'; did you mean 'llama-3-70b'?");
}

}  // namespace
}  // namespace penstock
