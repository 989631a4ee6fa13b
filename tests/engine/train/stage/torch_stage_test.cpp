// A chain of TorchStages trains like one module under plain autograd.
#include "train/stage/torch_stage.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>

#include <map>

#include "model/model.h"
#include "train/stage/stage_spec.h"

namespace penstock {
namespace {

constexpr int kMicrobatches = 3;

ModelConfig SmallConfig() {
  ModelConfig config = {.vocabulary = 13, .dim = 16, .layers = 3};
  config.options["heads"] = "2";
  config.sequence = 8;
  return config;
}

at::Tensor Batch(std::int64_t step, int microbatch, int which, std::int64_t length = 8) {
  at::manual_seed(static_cast<std::uint64_t>(step * 100 + microbatch * 2 + which));
  return torch::randint(13, {2, length}, torch::kLong);
}

// Stores the last message sent.
class Inbox final : public Outlet {
 public:
  void Send(Message message) override { message_ = std::move(message); }
  Message Take() { return std::move(message_); }

 private:
  Message message_;
};

// Returns a message of only the bytes, as a transport between processes would deliver it.
Message Copied(const Message& message) {
  auto* bytes = new std::vector<std::byte>(message.bytes());
  message.Pack(bytes->data());
  return Message(bytes->data(), bytes->size(), bytes,
                 [](void* owner) { delete static_cast<std::vector<std::byte>*>(owner); });
}

struct Options {
  int stages = 3;
  bool split = false;  // I and W instead of B
  bool copy = false;   // messages as bytes
  bool exact = true;
  bool lengths = false;  // each microbatch has another length
};

std::int64_t LengthOf(bool lengths, std::int64_t step, int microbatch) {
  return lengths ? 8 - (step + microbatch) % 4 : 8;
}

class Chain {
 public:
  explicit Chain(const Options& options) : options_(options) {
    const auto ranges = SplitLayers(SmallConfig().layers, options.stages).value();
    StageExamples examples{{Batch(0, 0, 0)}, {Batch(0, 0, 1)}};
    for (int i = 0; i < options.stages; ++i) {
      TorchStageOptions stage_options;
      stage_options.schedule.first = i == 0;
      stage_options.schedule.last = i == options.stages - 1;
      stage_options.schedule.microbatches = kMicrobatches;
      stage_options.compile.exact = options.exact;
      const auto read = [lengths = options.lengths](int which) {
        return [=](std::int64_t step, int microbatch) {
          return Batch(step, microbatch, which, LengthOf(lengths, step, microbatch));
        };
      };
      BatchSource source{read(0), read(1)};
      if (options.lengths) {
        source.shape = [](std::int64_t step, int microbatch) {
          const std::int64_t length = LengthOf(true, step, microbatch);
          return length == 8 ? 0 : length;
        };
      }
      const auto module = BuildStage(SmallConfig(), ranges[i]).value();
      auto stage = TorchStage::Make(
          module, examples, source, stage_options, [this](std::vector<NamedParameter>& parameters) {
            for (NamedParameter& parameter : parameters) {
              gradients_.push_back({parameter.name, parameter.gradient.clone()});
              parameter.value.sub_(parameter.gradient, 0.1);
            }
          });
      EXPECT_TRUE(stage) << stage.error().line();
      stages_.push_back(std::move(stage).value());
      examples.inputs = stages_.back()->ExampleOutputs();
      if (options.lengths) AddLengths(module, stage_options);
    }
  }

  // Runs a step and returns its loss.
  double Step(std::int64_t step) {
    gradients_.clear();
    for (auto& stage : stages_) stage->BeginStep(step);
    for (int microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
      for (auto& stage : stages_) stage->Forward(microbatch, Carry(), inbox_);
      for (auto& stage : stages_) {
        if (!options_.lengths) {
          EXPECT_EQ(stage->ActivationBytes(), stage->SavedBytes());
        }
      }
      for (std::size_t i = stages_.size(); i-- > 0;) BackwardOf(*stages_[i], microbatch);
      for (auto& stage : stages_) EXPECT_EQ(stage->ActivationBytes(), 0);
    }
    for (auto& stage : stages_) stage->Step();
    return stages_.back()->StepLoss();
  }

  std::vector<std::pair<std::string, at::Tensor>> gradients_;  // of the last step
  std::vector<std::unique_ptr<TorchStage>> stages_;

 private:
  // Compiles the last stage for the other lengths of microbatches.
  void AddLengths(const std::shared_ptr<StageModule>& module, const TorchStageOptions& options) {
    for (std::int64_t length = 5; length < 8; ++length) {
      std::vector<at::Tensor>& inputs = inputs_[length];
      if (options.schedule.first) inputs = {Batch(0, 0, 0, length)};
      StageProgram program =
          CompileSlices(module, {inputs, {Batch(0, 0, 1, length)}}, options).value().front();
      if (!options.schedule.last) inputs = ExamplesOf(program.outputs);
      stages_.back()->AddShape(length, std::move(program));
    }
  }

  Message Carry() {
    Message message = inbox_.Take();
    return options_.copy && !message.empty() ? Copied(message) : std::move(message);
  }

  void BackwardOf(TorchStage& stage, int microbatch) {
    if (!options_.split) return stage.Backward(microbatch, Carry(), inbox_);
    stage.BackwardInput(microbatch, Carry(), inbox_);
    stage.BackwardWeight(microbatch);
  }

  Options options_;
  Inbox inbox_;
  std::map<std::int64_t, std::vector<at::Tensor>> inputs_;  // of the next stage, by length
};

// Trains with autograd, in one module.
class Plain {
 public:
  explicit Plain(bool lengths) : lengths_(lengths) {
    LayerRange all = {.end = SmallConfig().layers, .embedding = true, .head = true};
    module_ = BuildStage(SmallConfig(), all).value();
  }

  double Step(std::int64_t step) {
    module_->zero_grad();
    double sum = 0;
    for (int microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
      const std::int64_t length = LengthOf(lengths_, step, microbatch);
      const at::Tensor logits = module_->forward(Batch(step, microbatch, 0, length));
      const at::Tensor loss = torch::nn::functional::cross_entropy(
          logits.view({-1, 13}), Batch(step, microbatch, 1, length).view({-1}));
      (loss / kMicrobatches).backward();
      sum += loss.item<float>();
    }
    gradients_.clear();
    const torch::NoGradGuard no_gradients;
    for (auto& parameter : module_->named_parameters()) {
      gradients_.push_back({parameter.key(), parameter.value().grad().clone()});
      parameter.value().sub_(parameter.value().grad(), 0.1);
    }
    return sum / kMicrobatches;
  }

  std::vector<std::pair<std::string, at::Tensor>> gradients_;

 private:
  bool lengths_;
  std::shared_ptr<StageModule> module_;
};

class EveryChain : public ::testing::TestWithParam<Options> {
 protected:
  void SetUp() override { at::set_num_threads(1); }
};

TEST_P(EveryChain, TrainsLikeAutogradToTheLastBit) {
  Chain chain(GetParam());
  Plain plain(GetParam().lengths);
  for (int step = 0; step < 3; ++step) {
    const double expected = plain.Step(step);
    const double loss = chain.Step(step);
    if (GetParam().exact) {
      EXPECT_EQ(loss, expected) << "step " << step;
    } else {
      EXPECT_NEAR(loss, expected, 1e-5) << "step " << step;
    }
    ASSERT_EQ(chain.gradients_.size(), plain.gradients_.size());
    for (const auto& [name, gradient] : plain.gradients_) {
      const auto found = std::find_if(chain.gradients_.begin(), chain.gradients_.end(),
                                      [&](const auto& other) { return other.first == name; });
      ASSERT_NE(found, chain.gradients_.end()) << name;
      EXPECT_TRUE(GetParam().exact ? torch::equal(found->second, gradient)
                                   : torch::allclose(found->second, gradient, 1e-4, 1e-6))
          << name << " step " << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    TorchStage, EveryChain,
    ::testing::Values(Options{1, false, false, true}, Options{2, false, false, true},
                      Options{3, false, false, true}, Options{3, true, false, true},
                      Options{3, false, true, true}, Options{2, true, true, true},
                      Options{2, false, false, false}, Options{3, false, false, true, true},
                      Options{2, true, false, true, true}),
    [](const auto& info) {
      return fmt::format("{}stages{}{}{}{}", info.param.stages, info.param.split ? "Split" : "",
                         info.param.copy ? "Copied" : "", info.param.exact ? "" : "Inexact",
                         info.param.lengths ? "OfVariousLengths" : "");
    });

class Misuse : public ::testing::Test {
 protected:
  Misuse() : chain_(Options{2}) {}
  TorchStage& first() { return *chain_.stages_.front(); }
  Chain chain_;
  Inbox inbox_;
};

TEST_F(Misuse, BackwardBeforeForward) {
  first().BeginStep(0);
  EXPECT_THROW(first().Backward(0, {}, inbox_), InternalError);
}

TEST_F(Misuse, ForwardTwice) {
  first().BeginStep(0);
  first().Forward(0, {}, inbox_);
  EXPECT_THROW(first().Forward(0, {}, inbox_), InternalError);
}

TEST_F(Misuse, WeightBeforeInput) {
  first().BeginStep(0);
  first().Forward(0, {}, inbox_);
  EXPECT_THROW(first().BackwardWeight(0), InternalError);
}

TEST_F(Misuse, MicrobatchBeyondTheStep) {
  first().BeginStep(0);
  EXPECT_THROW(first().Forward(kMicrobatches, {}, inbox_), InternalError);
}

TEST_F(Misuse, StepWhileAMicrobatchIsInFlight) {
  first().BeginStep(0);
  first().Forward(0, {}, inbox_);
  EXPECT_THROW(first().BeginStep(1), InternalError);
}

TEST_F(Misuse, MessageOfAnotherSize) {
  chain_.stages_[1]->BeginStep(0);
  std::byte few[4] = {};
  EXPECT_THROW(chain_.stages_[1]->Forward(0, Message(few, 4, nullptr, [](void*) {}), inbox_),
               std::runtime_error);
}

}  // namespace
}  // namespace penstock
