// Text does not depend on the cache, which makes generation cost one forward of one token each.
#include "train/evaluation/write_text.h"

#include <gtest/gtest.h>

#include "model/sequence_context.h"
#include "tests/engine/train/tiny_run.h"

namespace penstock {
namespace {

constexpr std::int64_t kShortWindow = 12;

ModelConfig SmallModel(std::string_view name) {
  ModelConfig config = TinyConfig().model;
  config.name = name;
  config.vocabulary = 256;
  config.dim = 16;
  config.layers = 3;
  config.sequence = kShortWindow;
  return config;
}

// Counts the tokens that a stage computes.
class CountingStage : public StageModule {
 public:
  CountingStage(std::shared_ptr<StageModule> stage, std::int64_t& tokens)
      : stage_(std::move(stage)), tokens_(tokens) {}
  torch::Tensor forward(torch::Tensor input) override {
    tokens_ += input.size(1);
    return stage_->forward(std::move(input));
  }
  torch::Tensor ForwardSlice(torch::Tensor input, SequenceContext& context) override {
    tokens_ += input.size(1);
    return stage_->ForwardSlice(std::move(input), context);
  }
  bool HasForwardSlice() const override { return stage_->HasForwardSlice(); }

 private:
  std::shared_ptr<StageModule> stage_;
  std::int64_t& tokens_;
};

TEST(WriteText, IsTheSameWithoutACache) {
  for (const std::string_view name : ModelNames()) {
    for (const int stages : {1, 2}) {
      const LanguageModel model = LanguageModel::Build(SmallModel(name), stages).value();
      for (const double temperature : {0.0, 1.0}) {
        // Shorter than the window, longer than it at once, and longer only after some tokens.
        for (const char* prompt : {"", "the model", "a prompt that is longer than a window"}) {
          WriteOptions options = {.prompt = prompt, .tokens = 4 * kShortWindow};
          options.sampling.temperature = temperature;
          const std::string text = WriteText(model, options);
          options.cache = false;
          EXPECT_EQ(text, WriteText(model, options)) << name << " " << prompt;
        }
      }
    }
  }
}

TEST(WriteText, ComputesEachTokenOnce) {
  for (const std::string_view name : ModelNames()) {
    LanguageModel model = LanguageModel::Build(SmallModel(name), 1).value();
    if (!model.stages[0]->HasForwardSlice()) continue;
    std::int64_t tokens = 0;
    model.stages[0] = std::make_shared<CountingStage>(model.stages[0], tokens);
    WriteOptions options = {.prompt = "prompt", .tokens = 5};
    WriteText(model, options);
    EXPECT_EQ(tokens, 1 + 6 + 4) << name;  // the start of a document, the prompt, and new ones
    // Half of the window is read again each time when it is full.
    tokens = 0;
    options.tokens = 100;
    WriteText(model, options);
    EXPECT_LE(tokens, 1 + 6 + 2 * 100) << name;
  }
}

TEST(WriteText, EndsBeforeTheEndOfTheText) {
  const LanguageModel model = LanguageModel::Build(SmallModel("llama"), 1).value();
  WriteOptions options;
  options.sampling.temperature = 0;
  options.tokens = 1;
  const std::string first = WriteText(model, options);
  for (std::int64_t token = 0; token < 256; ++token) {
    options.ends_of_text = {-1, token};
    if (WriteText(model, options).empty()) return;
  }
  ADD_FAILURE() << "no token ended " << first;
}

}  // namespace
}  // namespace penstock
