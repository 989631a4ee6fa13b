#include "model/model.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "model/sequence_context.h"

namespace penstock {
namespace {

ModelConfig Tiny() {
  ModelConfig config;
  config.vocabulary = 64;
  config.dim = 16;
  config.layers = 5;
  config.heads = 4;
  config.sequence = 12;
  return config;
}

std::vector<std::shared_ptr<StageModule>> Build(const ModelConfig& config,
                                                const std::vector<std::int64_t>& counts) {
  std::vector<std::shared_ptr<StageModule>> stages;
  const auto ranges = SplitLayers(config.layers, static_cast<int>(counts.size()), counts);
  for (const LayerRange& range : ranges.value()) {
    stages.push_back(BuildStage(config, range).value());
  }
  return stages;
}

torch::Tensor Logits(const std::vector<std::shared_ptr<StageModule>>& stages, torch::Tensor value) {
  for (const auto& stage : stages) value = stage->forward(value);
  return value;
}

torch::Tensor Tokens(const ModelConfig& config, std::int64_t length) {
  return at::randint(config.vocabulary, {2, length}, at::kLong);
}

TEST(Model, AnyCutGivesTheSameLogitsAndTheSameNames) {
  ModelConfig config = Tiny();
  config.kv_heads = 2;
  const torch::Tensor tokens = Tokens(config, config.sequence);
  const auto whole = Build(config, {5});
  const torch::Tensor expected = Logits(whole, tokens);
  EXPECT_EQ(expected.sizes(), (std::vector<std::int64_t>{2, config.sequence, config.vocabulary}));
  std::set<std::string> names;
  for (const auto& parameter : whole[0]->named_parameters()) names.insert(parameter.key());
  EXPECT_TRUE(names.count("layers.3.wq.weight"));
  for (const std::vector<std::int64_t>& cut : std::vector<std::vector<std::int64_t>>{
           {3, 2}, {1, 4}, {1, 1, 3}, {2, 1, 1, 1}, {1, 1, 1, 1, 1}}) {
    const auto stages = Build(config, cut);
    EXPECT_TRUE(at::equal(Logits(stages, tokens), expected));
    std::set<std::string> slice_names;
    for (const auto& stage : stages) {
      for (const auto& parameter : stage->named_parameters()) {
        EXPECT_TRUE(slice_names.insert(parameter.key()).second) << parameter.key();
      }
    }
    EXPECT_EQ(slice_names, names);
  }
}

TEST(Model, SeesOnlyThePast) {
  const ModelConfig config = Tiny();
  const auto stages = Build(config, {5});
  const torch::Tensor tokens = Tokens(config, config.sequence);
  const torch::Tensor expected = Logits(stages, tokens);
  torch::Tensor other = tokens.clone();
  other.narrow(1, 7, config.sequence - 7).add_(1).remainder_(config.vocabulary);
  const torch::Tensor actual = Logits(stages, other);
  EXPECT_TRUE(at::equal(actual.narrow(1, 0, 7), expected.narrow(1, 0, 7)));
  EXPECT_FALSE(at::equal(actual.narrow(1, 7, 1), expected.narrow(1, 7, 1)));
}

TEST(Model, TakesShorterSequences) {
  const ModelConfig config = Tiny();
  const auto stages = Build(config, {5});
  const torch::Tensor tokens = Tokens(config, config.sequence);
  const torch::Tensor full = Logits(stages, tokens).narrow(1, 0, 5);
  EXPECT_TRUE(full.allclose(Logits(stages, tokens.narrow(1, 0, 5)), 1e-4, 1e-6));
}

TEST(Model, SeedDecidesTheParameters) {
  ModelConfig config = Tiny();
  const auto value = [&] {
    return Build(config, {5})[0]->named_parameters()["layers.2.w1.weight"].detach().clone();
  };
  const torch::Tensor one = value();
  EXPECT_TRUE(at::equal(one, value()));
  config.seed = 2;
  EXPECT_FALSE(at::equal(one, value()));
}

TEST(Model, RefusesWhatDoesNotFit) {
  const auto refused = [](auto change) {
    ModelConfig config = Tiny();
    change(config);
    const auto stage = BuildStage(config, {0, config.layers, true, true});
    return !stage && stage.error().code == ErrorCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](ModelConfig& c) { c.name = "lama"; }));
  EXPECT_TRUE(refused([](ModelConfig& c) { c.heads = 3; }));
  EXPECT_TRUE(refused([](ModelConfig& c) { c.heads = 16; }));  // heads of one number
  EXPECT_TRUE(refused([](ModelConfig& c) { c.kv_heads = 3; }));
  EXPECT_TRUE(refused([](ModelConfig& c) { c.dim = 0; }));
  EXPECT_TRUE(refused([](ModelConfig& c) { c.sequence = -1; }));
  EXPECT_FALSE(refused([](ModelConfig&) {}));
  EXPECT_FALSE(BuildStage(Tiny(), {0, 6, true, true}));
}

TEST(SplitLayers, IsEvenLongerFirstAndRefusesTooFew) {
  const auto counts = [](const std::vector<LayerRange>& ranges) {
    std::vector<std::int64_t> result;
    for (const LayerRange& range : ranges) result.push_back(range.end - range.begin);
    return result;
  };
  EXPECT_EQ(counts(SplitLayers(7, 3).value()), (std::vector<std::int64_t>{3, 2, 2}));
  const auto ranges = SplitLayers(7, 3).value();
  EXPECT_TRUE(ranges[0].embedding && !ranges[0].head && ranges[2].head && !ranges[1].embedding);
  EXPECT_FALSE(SplitLayers(3, 4));
  EXPECT_FALSE(SplitLayers(3, 0));
  EXPECT_FALSE(SplitLayers(4, 2, std::vector<std::int64_t>{4, 0}));
  EXPECT_FALSE(SplitLayers(4, 2, std::vector<std::int64_t>{1, 2}));
  EXPECT_FALSE(SplitLayers(4, 2, std::vector<std::int64_t>{1, 1, 2}));
}

TEST(Model, PartsOfASequenceGiveWhatTheWholeGives) {
  ModelConfig config = Tiny();
  config.kv_heads = 2;
  const auto stages = Build(config, {2, 3});
  const torch::Tensor tokens = Tokens(config, config.sequence);
  const torch::Tensor expected = Logits(stages, tokens);
  std::vector<std::vector<torch::Tensor>> kept(stages.size());  // by stage: of the parts so far
  std::vector<torch::Tensor> logits;
  std::int64_t begin = 0;
  for (const std::int64_t length : {3, 1, 6, 2}) {
    torch::Tensor value = tokens.narrow(1, begin, length);
    for (std::size_t i = 0; i < stages.size(); ++i) {
      SequenceContext context(static_cast<int>(logits.size()), kept[i]);
      EXPECT_EQ(context.start(), begin);
      value = stages[i]->ForwardSlice(value, context);
      kept[i].insert(kept[i].end(), context.Own().begin(), context.Own().end());
    }
    logits.push_back(value);
    begin += length;
  }
  EXPECT_TRUE(at::allclose(at::cat(logits, 1), expected, 1e-5, 1e-6));
}

}  // namespace
}  // namespace penstock
