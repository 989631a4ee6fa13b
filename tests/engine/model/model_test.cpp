// Models do not depend on the partition into stages, and reject invalid configurations.
#include "model/model.h"

#include <ATen/ATen.h>
#include <ATen/TensorIndexing.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "model/rope.h"
#include "model/sequence_context.h"

namespace penstock {
namespace {

ModelConfig Tiny() {
  ModelConfig config = {.vocabulary = 64, .dim = 16, .layers = 5};
  config.options["heads"] = "4";
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

TEST(Model, AnyPartitionHasTheSameLogitsAndNames) {
  ModelConfig config = Tiny();
  config.options["kv_heads"] = "2";
  const torch::Tensor tokens = Tokens(config, config.sequence);
  const auto whole = Build(config, {5});
  const torch::Tensor expected = Logits(whole, tokens);
  EXPECT_EQ(expected.sizes(), (std::vector<std::int64_t>{2, config.sequence, config.vocabulary}));
  std::set<std::string> names;
  for (const auto& parameter : whole[0]->named_parameters()) names.insert(parameter.key());
  EXPECT_TRUE(names.count("layers.3.wq.weight"));
  for (const std::vector<std::int64_t>& counts : std::vector<std::vector<std::int64_t>>{
           {3, 2}, {1, 4}, {1, 1, 3}, {2, 1, 1, 1}, {1, 1, 1, 1, 1}}) {
    const auto stages = Build(config, counts);
    EXPECT_TRUE(at::equal(Logits(stages, tokens), expected));
    std::set<std::string> partition_names;
    for (const auto& stage : stages) {
      for (const auto& parameter : stage->named_parameters()) {
        EXPECT_TRUE(partition_names.insert(parameter.key()).second) << parameter.key();
      }
    }
    EXPECT_EQ(partition_names, names);
  }
}

// Biases are 0, norm weights are 1, and matrices are random, smaller if they add to the residual
// stream.
TEST(Model, EachModelInitializesItsParameters) {
  for (const std::string_view name : ModelNames()) {
    ModelConfig config = Tiny();
    config.name = name;
    config.dim = 64;
    const auto stage = Build(config, {config.layers}).front();
    for (const auto& parameter : stage->named_parameters()) {
      SCOPED_TRACE(parameter.key());
      const torch::Tensor value = parameter.value().detach();
      if (value.dim() == 1) {
        const bool is_bias = parameter.key().ends_with(".bias");
        EXPECT_TRUE(at::equal(value, at::full_like(value, is_bias ? 0 : 1)));
        continue;
      }
      const bool residual =
          parameter.key().ends_with("wo.weight") || parameter.key().ends_with("w2.weight");
      const double deviation = residual ? 0.02 / std::sqrt(2.0 * 5) : 0.02;
      EXPECT_NEAR(value.std().item<double>(), deviation, 0.1 * deviation);
    }
  }
}

// Every parameter is in exactly one stage, unless it is declared as shared.
TEST(Model, SharesOnlyDeclaredParameters) {
  for (const std::string_view name : ModelNames()) {
    ModelConfig config = Tiny();
    config.name = name;
    for (const int stages : {1, 2, 3}) {
      const auto ranges = SplitLayers(config.layers, stages).value();
      std::map<std::string, std::vector<int>> holders;
      for (int stage = 0; stage < stages; ++stage) {
        const auto module = BuildStage(config, ranges[stage]).value();
        for (const auto& each : module->named_parameters()) holders[each.key()].push_back(stage);
      }
      std::map<std::string, std::vector<int>> declared;
      for (const SharedParameter& each : SharedParameters(config, ranges)) {
        declared[each.name] = each.stages;
      }
      std::erase_if(holders, [](const auto& each) { return each.second.size() == 1; });
      EXPECT_EQ(holders, declared) << name << " in " << stages << " stages";
      EXPECT_EQ(declared.size(), name == "gpt2" && stages > 1 ? 1U : 0U);
    }
  }
}

TEST(Model, AttendsOnlyToPreviousTokens) {
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

TEST(Model, AcceptsShorterSequences) {
  const ModelConfig config = Tiny();
  const auto stages = Build(config, {5});
  const torch::Tensor tokens = Tokens(config, config.sequence);
  const torch::Tensor full = Logits(stages, tokens).narrow(1, 0, 5);
  EXPECT_TRUE(full.allclose(Logits(stages, tokens.narrow(1, 0, 5)), 1e-4, 1e-6));
}

TEST(Model, SeedDeterminesTheParameters) {
  ModelConfig config = Tiny();
  const auto value = [&] {
    return Build(config, {5})[0]->named_parameters()["layers.2.w1.weight"].detach().clone();
  };
  const torch::Tensor one = value();
  EXPECT_TRUE(at::equal(one, value()));
  config.seed = 2;
  EXPECT_FALSE(at::equal(one, value()));
}

TEST(Model, RejectsInvalidConfigurations) {
  const auto rejected = [](auto change) {
    ModelConfig config = Tiny();
    change(config);
    const auto stage = BuildStage(config, {0, config.layers, true, true});
    return !stage && stage.error().code == ErrorCode::kInvalidArgument;
  };
  EXPECT_TRUE(rejected([](ModelConfig& c) { c.name = "lama"; }));
  EXPECT_TRUE(rejected([](ModelConfig& c) { c.options["head"] = "4"; }));
  EXPECT_TRUE(rejected([](ModelConfig& c) { c.options["heads"] = "four"; }));
  EXPECT_TRUE(rejected([](ModelConfig& c) { c.options["heads"] = "3"; }));
  EXPECT_TRUE(rejected([](ModelConfig& c) { c.options["heads"] = "16"; }));  // head dimension 1
  EXPECT_TRUE(rejected([](ModelConfig& c) { c.options["kv_heads"] = "3"; }));
  EXPECT_TRUE(rejected([](ModelConfig& c) { c.dim = 0; }));
  EXPECT_TRUE(rejected([](ModelConfig& c) { c.sequence = -1; }));
  EXPECT_FALSE(rejected([](ModelConfig&) {}));
  EXPECT_FALSE(BuildStage(Tiny(), {0, 6, true, true}));
}

TEST(SplitLayers, IsEvenAndRejectsInvalidCounts) {
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

class EveryModel : public testing::TestWithParam<std::string> {};

TEST_P(EveryModel, SlicesMatchTheWholeSequence) {
  ModelConfig config = Tiny();
  config.name = GetParam();
  const auto stages = Build(config, {2, 3});
  const torch::Tensor tokens = Tokens(config, config.sequence);
  const torch::Tensor expected = Logits(stages, tokens);
  std::vector<std::vector<torch::Tensor>> earlier(stages.size());  // by stage
  std::vector<torch::Tensor> logits;
  std::int64_t begin = 0;
  for (const std::int64_t length : {3, 1, 6, 2}) {
    torch::Tensor value = tokens.narrow(1, begin, length);
    for (std::size_t i = 0; i < stages.size(); ++i) {
      SequenceContext context(static_cast<int>(logits.size()), earlier[i], begin);
      value = stages[i]->ForwardSlice(value, context);
      earlier[i].insert(earlier[i].end(), context.Own().begin(), context.Own().end());
    }
    logits.push_back(value);
    begin += length;
  }
  EXPECT_TRUE(at::allclose(at::cat(logits, 1), expected, 1e-5, 1e-6));
}

INSTANTIATE_TEST_SUITE_P(Table, EveryModel, testing::Values("llama", "gpt2", "qwen3"),
                         [](const auto& info) { return info.param; });

TEST(Rope, ScalesLongPeriodsOnly) {
  constexpr std::int64_t kDim = 128, kSequence = 2;
  RopeScaling scaling{.type = "llama3", .factor = 8, .high_frequency_factor = 4};
  // The angle per token of the pair i.
  const auto angles = [&](const RopeScaling& how) {
    const RotaryTable table = RotaryTable::Make(kSequence, kDim, 500000, how);
    return at::atan2(table.sin[1].narrow(0, kDim / 2, kDim / 2),
                     table.cos[1].narrow(0, 0, kDim / 2));
  };
  const torch::Tensor plain = angles({}), scaled = angles(scaling);
  EXPECT_TRUE(at::equal(scaled.narrow(0, 0, 20), plain.narrow(0, 0, 20)));
  EXPECT_TRUE(at::allclose(scaled.narrow(0, 40, 24) * 8, plain.narrow(0, 40, 24), 1e-3, 1e-9));
  const torch::Tensor between = plain / scaled;
  EXPECT_TRUE((between.slice(0, 1) - between.slice(0, 0, -1) > -1e-3).all().item<bool>());
  scaling.type = "linear";
  EXPECT_TRUE(at::allclose(angles(scaling) * 8, plain, 1e-5, 1e-9));
}

// With equal logits, every prediction costs the logarithm of the vocabulary.
TEST(Model, PredictorAddsItsShareToTheLossInTraining) {
  ModelConfig config = Tiny();
  config.name = "deepseek_v3";
  config.options = {{"heads", "2"}, {"predictor", "1"}, {"predictor_weight", "0.25"}};
  const auto stage = BuildStage(config, {0, config.layers, true, true}).value();
  const torch::NoGradGuard no_grad;
  for (auto& parameter : stage->named_parameters()) {
    if (parameter.key() == "head.weight") parameter.value().zero_();
  }
  const at::Tensor tokens = at::randint(config.vocabulary, {2, config.sequence}, at::kLong);
  const auto loss = [&] { return stage->Loss(stage->ForwardAll({&tokens, 1}), tokens); };
  const double one = std::log(static_cast<double>(config.vocabulary));
  EXPECT_NEAR(loss().item<float>(), one, 1e-5);
  stage->train();
  EXPECT_NEAR(loss().item<float>(), 1.25 * one, 1e-5);
}

}  // namespace
}  // namespace penstock
