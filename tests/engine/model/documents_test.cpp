// A packed sequence trains as its documents do on their own.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "model/model_entry.h"
#include "tests/results.h"

namespace penstock {
namespace {

constexpr std::int64_t kEnd = 0;
using Gradients = std::map<std::string, at::Tensor>;

ModelConfig Config(const std::string& model, std::int64_t sequence, bool separate) {
  ModelConfig config = {.name = model, .vocabulary = 32, .dim = 16, .layers = 2};
  config.options["heads"] = "2";
  config.sequence = sequence;
  if (separate) config.document_end = kEnd;
  return config;
}

std::shared_ptr<StageModule> Whole(const ModelConfig& config) {
  return BuildStage(config, {0, config.layers, true, true}).value();
}

// Random tokens that end with kEnd, [1, length].
at::Tensor Document(std::int64_t length) {
  return at::cat(
      {at::randint(1, 32, {1, length - 1}, at::kLong), at::full({1, 1}, kEnd, at::kLong)}, 1);
}

at::Tensor SumOfLosses(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.flatten(0, 1), targets.flatten(), {}, at::Reduction::Sum);
}

Gradients GradientsOf(const StageModule& stage) {
  Gradients gradients;
  for (const auto& each : stage.named_parameters()) {
    if (each.value().grad().defined()) gradients[each.key()] = each.value().grad();
  }
  return gradients;
}

void ExpectPackedEqualsAlone(const std::string& model, const std::vector<std::int64_t>& lengths) {
  std::vector<at::Tensor> documents;
  std::int64_t sequence = 0;
  for (const std::int64_t length : lengths) {
    documents.push_back(Document(length));
    sequence += length;
  }
  const at::Tensor packed = at::cat(documents, 1);
  const at::Tensor targets = packed.roll(-1, 1);
  const auto separate = Whole(Config(model, sequence, true));
  const at::Tensor actual = separate->forward(packed);
  SumOfLosses(actual, targets).backward();
  const auto alone = Whole(Config(model, sequence, false));
  std::vector<at::Tensor> logits;
  std::int64_t begin = 0;
  for (const at::Tensor& document : documents) {
    logits.push_back(alone->forward(document));
    SumOfLosses(logits.back(), targets.narrow(1, begin, document.size(1))).backward();
    begin += document.size(1);
  }
  EXPECT_TRUE(at::allclose(actual, at::cat(logits, 1), 0, 1e-6));
  EXPECT_FALSE(at::allclose(alone->forward(packed), actual, 0, 1e-4));
  const Gradients expected = GradientsOf(*alone);
  for (const auto& [name, gradient] : GradientsOf(*separate)) {
    const double largest = expected.at(name).abs().max().item<double>();
    EXPECT_TRUE(at::allclose(gradient, expected.at(name), 0, 1e-6 + 2e-6 * largest)) << name;
  }
}

class EveryModelWithDocuments : public testing::TestWithParam<std::string> {};

TEST_P(EveryModelWithDocuments, PackedEqualsAlone) {
  ExpectPackedEqualsAlone(GetParam(), {5, 1, 9, 2, 17});
}

TEST_P(EveryModelWithDocuments, AnyPartitionHasTheSameBits) {
  const ModelConfig config = Config(GetParam(), 12, true);
  const at::Tensor tokens = at::cat({Document(5), Document(7)}, 1).expand({2, 12});
  std::vector<at::Tensor> values = {tokens};
  const auto ranges = SplitLayers(config.layers, 2).value();
  for (const LayerRange& range : ranges) {
    values = BuildStage(config, range).value()->ForwardAll(values);
  }
  EXPECT_TRUE(at::equal(values.front(), Whole(config)->forward(tokens)));
}

INSTANTIATE_TEST_SUITE_P(Table, EveryModelWithDocuments,
                         testing::Values("llama", "gpt2", "qwen3", "mixtral", "qwen3_moe",
                                         "deepseek_v2", "deepseek_v3"),
                         [](const auto& info) { return info.param; });

// Whole blocks of the fused kernel see none of their keys.
TEST(Documents, LongDocumentsAreEqual) { ExpectPackedEqualsAlone("llama", {700, 3, 600}); }

// The states that predict the token after the next one also see only their own document.
TEST(Documents, ThePredictorSeparatesThemToo) {
  at::manual_seed(1);
  ModelConfig config = Config("deepseek_v3", 24, true);
  config.options["predictor"] = "1";
  const at::Tensor first = Document(9), second = Document(15);
  const auto loss = [&](const ModelConfig& how, const at::Tensor& tokens,
                        const at::Tensor& targets) {
    const auto stage = Whole(how);
    stage->train();
    const auto outputs = stage->ForwardAll({&tokens, 1});
    const double mean = SumOfLosses(outputs[0], targets).item<double>() / targets.numel();
    return (stage->Loss(outputs, targets).item<double>() - mean) * (targets.numel() - 1);
  };
  const at::Tensor packed = at::cat({first, second}, 1), targets = packed.roll(-1, 1);
  ModelConfig whole = config;
  whole.document_end = -1;
  // A token's prediction reads the next one, so the first document needs one more to be complete.
  const double alone = loss(whole, packed.narrow(1, 0, 10), targets.narrow(1, 0, 10)) +
                       loss(whole, second, targets.narrow(1, 9, 15));
  const double rounding = 1e-6 * std::abs(alone);
  EXPECT_NEAR(loss(config, packed, targets), alone, rounding);
  EXPECT_GT(std::abs(loss(whole, packed, targets) - alone), 2 * rounding);
}

TEST(Documents, AModelThatDoesNotSeparateThemIsRefused) {
  ModelEntry entry = *FindModelEntry("llama");
  entry.name = "one_text";
  entry.separates_documents = false;
  ASSERT_TRUE(AddModel(std::move(entry)));
  ModelConfig config = Config("one_text", 8, true);
  EXPECT_EQ(LineOf(CheckModel(config)),
            "data.document_mask: model 'one_text' does not separate documents; remove it");
  config.document_end = -1;
  EXPECT_TRUE(CheckModel(config));
}

}  // namespace
}  // namespace penstock
