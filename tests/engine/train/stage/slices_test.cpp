// Sequences in slices train like whole sequences.
//
// Not bit for bit: a softmax over the keys of several slices, and weight gradients of parts of a
// sequence, are summed in another order. Losses differ by at most 1e-5, and gradients by at most
// 2e-5 of the largest of their parameter, in fp32.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/mutex.h"
#include "config/run_schedule.h"
#include "config/sequence_lengths.h"
#include "runtime/executor/run.h"
#include "schedule/catalog.h"
#include "simulate/simulate.h"
#include "tests/results.h"
#include "train/compiled/compile_stages.h"
#include "train/run/pipeline.h"

namespace penstock {
namespace {

constexpr double kLossBound = 1e-5;
constexpr double kGradientBound = 2e-5;

struct Case {
  TrainConfig config;
  Schedule schedule;
};

// Returns a small model.
TrainConfig Config(std::int64_t layers, std::int64_t sequence) {
  TrainConfig config;
  config.model.vocabulary = 24;
  config.model.dim = 16;
  config.model.options["heads"] = "4";
  config.model.options["kv_heads"] = "2";
  config.model.layers = layers;
  config.model.sequence = sequence;
  config.batch = 2;
  config.optimizer.warmup = 1;
  return config;
}

Case RandomCase(std::mt19937& random, bool split) {
  ScheduleParams params = {.ranks = 1 + static_cast<int>(random() % 3),
                           .chunks = 1 + static_cast<int>(random() % 2),
                           .microbatches = 1 + static_cast<int>(random() % 3),
                           .slices = 2 + static_cast<int>(random() % 3),
                           .split = split};
  Case made{{}, Generate("seq1f1b", params).value()};
  std::vector<std::int64_t> layers;
  std::int64_t all = 0;
  for (int stage = 0; stage < made.schedule.stages(); ++stage) {
    layers.push_back(1 + static_cast<std::int64_t>(random() % 2));
    all += layers.back();
  }
  made.config = Config(all, params.slices * (1 + static_cast<std::int64_t>(random() % 5)));
  if (random() % 2 == 0) {
    made.config.model.sequence = 0;
    for (int slice = 0; slice < params.slices; ++slice) {
      const std::int64_t tokens = 1 + static_cast<std::int64_t>(random() % 6);
      made.config.pipeline.slice_lengths.push_back(tokens);
      made.config.model.sequence += tokens;
    }
  }
  if (random() % 2 == 0) {
    made.config.model.name = "gpt2";
    made.config.model.options.erase("kv_heads");
  }
  made.config.seed = made.config.model.seed = random();
  made.config.exact = random() % 2 == 0;
  made.config.pipeline.stage_layers = layers;
  made.config.pipeline.microbatches = params.microbatches;
  made.config.pipeline.slices = params.slices;
  if (random() % 3 == 0) made.config.recompute = {"least", "least"};
  return made;
}

std::vector<std::uint8_t> RandomBytes() {
  std::mt19937 random(5);
  std::vector<std::uint8_t> text(500);
  for (auto& byte : text) byte = static_cast<std::uint8_t>(random() % 24);
  return text;
}

struct Gradients {
  double loss = 0;
  std::map<std::string, at::Tensor> of;
};

// Runs the schedule without updates. Returns the gradients of a step.
Gradients OfPipeline(const Case& made, const BatchSource& source, Trace* trace = nullptr) {
  const ModelConfig& model = made.config.model;
  const Schedule& schedule = made.schedule;
  const LanguageModel whole =
      LanguageModel::Build(model, schedule.stages(), made.config.pipeline.stage_layers).value();
  Gradients found;
  Mutex mutex;
  std::vector<std::unique_ptr<TorchStage>> stages;
  std::vector<Stage*> pointers;
  const at::Tensor tokens =
      at::zeros({made.config.batch, SliceLengths(made.config).front()}, at::kLong);
  StageExamples examples{{tokens}, {at::zeros_like(tokens)}};
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    TorchStageOptions options;
    options.schedule.first = stage == 0;
    options.schedule.last = stage == schedule.stages() - 1;
    options.schedule.microbatches = schedule.indices();
    options.lengths.of_slices = SliceLengths(made.config);
    options.compile.exact = made.config.exact;
    options.compile.save_budget = ParseSavedBytes(made.config.recompute.hold).value();
    options.compile.save_budget_for_weight =
        ParseSavedBytes(made.config.recompute.hold_for_weight).value();
    const auto keep = [&](std::vector<NamedParameter>& parameters) {
      const MutexLock lock(mutex);
      for (const NamedParameter& each : parameters) {
        at::Tensor& sum = found.of[each.name];  // over the stages that share it
        sum = sum.defined() ? sum + each.gradient : each.gradient.clone();
      }
    };
    auto stage_made = TorchStage::Make(whole.stages[stage], examples, source, options, keep);
    EXPECT_TRUE(stage_made) << stage_made.error().line();
    stages.push_back(*std::move(stage_made));
    examples.inputs = stages.back()->ExampleOutputs();
    pointers.push_back(stages.back().get());
  }
  RunOptions options = {.steps = trace == nullptr ? 1 : 3, .trace = trace};
  options.on_thread_start = [](int) { at::set_num_threads(1); };
  EXPECT_TRUE(Succeeds(RunRanks(schedule, pointers, options)));
  for (const auto& stage : stages) EXPECT_EQ(stage->ActivationBytes(), 0);
  found.loss = stages.back()->StepLoss();
  return found;
}

// Returns the gradients of whole sequences by autograd, on one rank.
Gradients OfAutograd(const Case& made, const BatchSource& source) {
  const LanguageModel whole = LanguageModel::Build(made.config.model).value();
  StageModule& module = *whole.stages.front();
  const int microbatches = made.schedule.microbatches;
  Gradients found;
  for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
    const at::Tensor logits = module.forward(source.tokens(0, microbatch));
    const at::Tensor loss = at::cross_entropy_loss(logits.reshape({-1, logits.size(-1)}),
                                                   source.targets(0, microbatch).reshape({-1}));
    (loss / microbatches).backward();
    found.loss += loss.item<double>() / microbatches;
  }
  for (const auto& parameter : module.named_parameters()) {
    found.of[parameter.key()] = parameter.value().grad();
  }
  return found;
}

BatchSource SourceOf(const TrainConfig& config) {
  static const std::vector<std::uint8_t> kText = RandomBytes();
  return MakeBatchSource(Sampler(kText, config.model.sequence, config.seed), config);
}

void ExpectNear(const Gradients& actual, const Gradients& expected) {
  EXPECT_NEAR(actual.loss, expected.loss, kLossBound * expected.loss);
  ASSERT_EQ(actual.of.size(), expected.of.size());
  for (const auto& [name, gradient] : expected.of) {
    const double largest = gradient.abs().max().item<double>();
    EXPECT_GT(largest, 0) << name;
    const double error = (actual.of.at(name) - gradient).abs().max().item<double>();
    EXPECT_LE(error, kGradientBound * largest) << name;
  }
}

class Slices : public testing::TestWithParam<bool> {};

TEST_P(Slices, TrainLikeWholeSequences) {
  std::mt19937 random(GetParam() ? 3 : 4);
  for (int i = 0; i < 6; ++i) {
    const Case made = RandomCase(random, GetParam());
    SCOPED_TRACE(fmt::format("case {}: {} p={} v={} m={} k={} of {} tokens", i,
                             made.config.model.name, made.schedule.ranks(),
                             made.schedule.placement.chunks(), made.schedule.microbatches,
                             made.schedule.slices, made.config.model.sequence));
    TrainConfig whole = made.config;
    whole.pipeline.slices = 1;
    whole.pipeline.slice_lengths.clear();
    ExpectNear(OfPipeline(made, SourceOf(made.config)), OfAutograd(made, SourceOf(whole)));
  }
}

TEST_P(Slices, HaveThePredictedPeak) {
  std::mt19937 random(GetParam() ? 7 : 8);
  for (int i = 0; i < 3; ++i) {
    const Case made = RandomCase(random, GetParam());
    Trace trace = Trace::Make(made.schedule).value();
    OfPipeline(made, SourceOf(made.config), &trace);
    const RunMeasure measured = MeasureRun(trace, 0);
    const auto predicted = Simulate(made.schedule, MeasuredCosts(trace)).value();
    for (std::size_t rank = 0; rank < measured.ranks.size(); ++rank) {
      EXPECT_EQ(static_cast<double>(measured.ranks[rank].peak_activation_bytes),
                predicted.ranks[rank].peak_memory);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backward, Slices, testing::Bool(),
                         [](const auto& info) { return info.param ? "Split" : "Whole"; });

// Only their own slice stores keys and values, however many slices read them.
TEST(SliceMemory, SlicesTogetherHoldAsMuchAsTheSequence) {
  const auto saved = [](int slices) {
    TrainConfig config = Config(2, 32);
    config.model.options["kv_heads"] = "4";
    const Schedule schedule = Generate(slices == 1 ? "1f1b" : "seq1f1b",
                                       {.ranks = 2, .slices = config.pipeline.slices = slices})
                                  .value();
    config.pipeline.microbatches = schedule.microbatches;
    return BuildPipeline(config, schedule, SourceOf(config)).value().stages.front()->SavedBytes();
  };
  EXPECT_EQ(saved(4) * 4, saved(1));
}

TEST(SliceConfig, IsChecked) {
  TrainConfig config = Config(4, 30);
  config.pipeline.schedule = "seq1f1b";
  config.pipeline.ranks = 2;
  config.pipeline.slices = 4;
  const auto reason = [&] { return ChooseSchedule(config, 2).error().line(); };
  EXPECT_EQ(reason(),
            "model.sequence 30 does not divide into 4 equal slices: set pipeline.slice_lengths");
  config.pipeline.slice_lengths = {10, 5, 7, 9};
  EXPECT_EQ(
      reason(),
      "pipeline.slice_lengths: 4 lengths with 31 tokens in total, but there are 4 slices of a "
      "sequence of 30");
  config.pipeline.slice_lengths = {10, 5, 7, 8};
  EXPECT_TRUE(ChooseSchedule(config, 2));
  config.pipeline.slice_lengths.clear();
  config.pipeline.slices = 3;
  config.pipeline.split = true;
  EXPECT_EQ(ChooseSchedule(config, 2).value().indices(), 24);
  EXPECT_TRUE(Contains(CompileStages(config, testing::TempDir()).error().line(), "of 3 slices"));
  config.compiled = "stages";
  EXPECT_NE(reason().find("not 3 slices"), std::string::npos) << reason();
}

}  // namespace
}  // namespace penstock
