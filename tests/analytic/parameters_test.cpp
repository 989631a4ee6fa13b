// Models have the published numbers of parameters.
#include "analytic/parameters.h"

#include <gtest/gtest.h>

#include "analytic/published_models.h"
#include "analytic/stage_layers.h"

namespace penstock {
namespace {

struct Published {
  const char* name;
  double parameters;
};

// The numbers of the model cards and the published weights, as in tests/model/published_test.cpp.
constexpr Published kPublished[] = {
    {"llama-2-7b", 6'738'415'616},        {"llama-2-13b", 13'015'864'320},
    {"llama-2-70b", 68'976'648'192},      {"llama-3-8b", 8'030'261'248},
    {"llama-3-70b", 70'553'706'496},      {"llama-3-405b", 405'853'388'800},
    {"llama-3.2-1b", 1'235'814'400},      {"llama-3.2-3b", 3'212'749'824},
    {"qwen3-0.6b", 596'049'920},          {"qwen3-1.7b", 1'720'574'976},
    {"qwen3-4b", 4'022'468'096},          {"qwen3-8b", 8'190'735'360},
    {"qwen3-14b", 14'768'307'200},        {"qwen3-32b", 32'762'123'264},
    {"qwen3-30b-a3b", 30'532'122'624},    {"qwen3-235b-a22b", 235'093'634'560},
    {"mixtral-8x7b", 46'702'792'704},     {"mixtral-8x22b", 140'620'634'112},
    {"deepseek-v2-lite", 15'706'484'224}, {"deepseek-v2", 235'741'434'880},
    {"deepseek-v3", 671'026'419'200},     {"gpt2", 124'439'808},
    {"gpt2-medium", 354'823'168},         {"gpt2-large", 774'030'080},
    {"gpt2-xl", 1'557'611'200},
};

TEST(Parameters, AreAsManyAsPublished) {
  EXPECT_EQ(std::size(kPublished), PublishedModels().size());
  for (const Published& published : kPublished) {
    const auto shape = FindPublishedModel(published.name);
    ASSERT_TRUE(shape) << shape.error().line();
    EXPECT_TRUE(CheckShape(*shape)) << published.name;
    EXPECT_EQ(ModelParameters(*shape), published.parameters) << published.name;
  }
}

// The technical reports round them: Qwen3 has 3.3 and 22 billion, DeepSeek-V3 has 37, Mixtral 13.
TEST(Parameters, OfATokenAreAsManyAsPublished) {
  const auto active = [](const char* name) {
    return ActiveParameters(FindPublishedModel(name).value()) / 1e9;
  };
  EXPECT_NEAR(active("qwen3-30b-a3b"), 3.3, 0.1);
  EXPECT_NEAR(active("qwen3-235b-a22b"), 22, 0.3);
  EXPECT_NEAR(active("deepseek-v3"), 37, 0.6);
  EXPECT_NEAR(active("mixtral-8x7b"), 12.9, 0.1);
  EXPECT_EQ(active("llama-3-8b"), 8.030261248);
}

TEST(Parameters, OfTheStagesAddUpToThoseOfTheModel) {
  for (const ModelShape& shape : PublishedModels()) {
    const auto stages = SplitLayers(shape.layers, 5);
    ASSERT_TRUE(stages) << stages.error().line();
    double sum = 0;
    for (const LayerRange& stage : *stages) sum += ParametersOfStage(shape, stage, {}).all();
    const double copy =
        shape.tied ? static_cast<double>(shape.vocabulary) * static_cast<double>(shape.dim) : 0;
    EXPECT_EQ(sum, ModelParameters(shape) + copy) << shape.name;
  }
}

TEST(PublishedModels, SuggestsTheNearestName) {
  const auto found = FindPublishedModel("llama3-70b");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().line(), "no model is called 'llama3-70b'; did you mean 'llama-3-70b'?");
}

}  // namespace
}  // namespace penstock
