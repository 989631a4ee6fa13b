// Every schedule trains as one rank does with plain autograd: the same losses and the same weights.
//
// Bit for bit: each stage adds up its microbatches' weight gradients in the order of its own B or W
// cells, and the reference adds in that order, too. In another order the sums differ in the last
// bits, and so do schedules among each other.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/mix_bits.h"
#include "runtime/run.h"
#include "schedule/catalog.h"
#include "schedule/passes/passes.h"
#include "train/pipeline.h"

namespace penstock {
namespace {

constexpr int kSteps = 3;

TrainConfig TinyConfig() {
  TrainConfig config;
  config.model.vocabulary = 24;
  config.model.dim = 8;
  config.model.heads = 2;
  config.model.sequence = 5;
  config.batch = 2;
  config.steps = kSteps;
  config.optimizer.warmup = 1;
  config.optimizer.lr = 0.01;
  return config;
}

std::vector<std::uint8_t> Text() {
  std::mt19937 random(11);
  std::vector<std::uint8_t> text(400);
  for (auto& byte : text) byte = static_cast<std::uint8_t>(random() % 24);
  return text;
}

struct Trained {
  std::vector<double> losses;
  std::map<std::string, at::Tensor> parameters;
};

std::map<std::string, at::Tensor> ByName(const LanguageModel& model) {
  std::map<std::string, at::Tensor> parameters;
  for (const auto& [name, value] : model.Parameters()) parameters.emplace(name, value.clone());
  return parameters;
}

// Rows in the order in which the stage's weight gradients are made.
std::vector<int> OrderOfGradients(const Schedule& schedule, int stage) {
  std::vector<int> order;
  for (const Action& action :
       schedule.lanes[static_cast<std::size_t>(schedule.placement.rank_of(stage))]) {
    ForEachPart(action, [&](const Part& part) {
      if (part.stage == stage && EndsMicrobatch(part.op)) order.push_back(part.microbatch);
    });
  }
  return order;
}

// One rank, one module, autograd: gradients of each microbatch, added in the order of `orders`.
class Reference {
 public:
  Reference(const TrainConfig& config, std::map<std::string, std::vector<int>> orders)
      : config_(config),
        orders_(std::move(orders)),
        model_(Model(config)),
        working_(model_.stages),
        optimizer_(std::make_shared<LearningRate>(LearningRate{config.optimizer, config.steps})) {
    if (config.precision == "bf16") working_ = Cast(config);
    for (const auto& [name, value] : model_.Parameters()) {
      parameters_.push_back({name, value, at::zeros_like(value)});
    }
  }

  Trained Run(const BatchSource& source) {
    Trained trained;
    for (int step = 0; step < kSteps; ++step) trained.losses.push_back(Step(source, step));
    trained.parameters = ByName(model_);
    return trained;
  }

 private:
  // Whole; but in the same stages where each draws numbers for itself or rounds what it sends.
  static LanguageModel Model(const TrainConfig& config) {
    if (config.model.dropout == 0 && config.precision == "f32")
      return LanguageModel::Build(config.model).value();
    const auto& layers = config.pipeline.stage_layers;
    return LanguageModel::Build(config.model, static_cast<int>(layers.size()), layers).value();
  }

  std::vector<std::shared_ptr<StageModule>> Cast(const TrainConfig& config) const {
    const auto ranges = SplitLayers(config.model.layers, static_cast<int>(model_.stages.size()),
                                    config.pipeline.stage_layers);
    std::vector<std::shared_ptr<StageModule>> cast;
    for (std::size_t i = 0; i < model_.stages.size(); ++i) {
      cast.push_back(
          CastStage(*model_.stages[i], config.model, ranges->at(i), at::kBFloat16).value());
    }
    return cast;
  }

  at::Tensor Forward(at::Tensor value, int step, int row) {
    for (std::size_t i = 0; i < working_.size(); ++i) {
      StageModule& stage = *working_[i];
      stage.zero_grad();
      stage.train();
      at::Generator generator = at::detail::getDefaultCPUGenerator();
      generator.set_current_seed(SeedOfRun(SeedOf(config_.seed, i), step, row, Op::kForward));
      value = stage.forward(value);
    }
    return value;
  }

  double Step(const BatchSource& source, int step) {
    const int rows = config_.pipeline.microbatches;
    std::vector<std::map<std::string, at::Tensor>> gradients;
    double sum = 0;
    for (int row = 0; row < rows; ++row) {
      const at::Tensor logits = Forward(source.tokens(step, row), step, row).to(at::kFloat);
      const at::Tensor loss = at::cross_entropy_loss(logits.reshape({-1, logits.size(-1)}),
                                                     source.targets(step, row).reshape({-1}));
      (loss / rows).backward();
      sum += loss.item<float>();
      auto& of_row = gradients.emplace_back();
      for (const auto& stage : working_) {
        for (const auto& parameter : stage->named_parameters()) {
          of_row[parameter.key()] = parameter.value().grad().clone();
        }
      }
    }
    for (NamedParameter& parameter : parameters_) {
      parameter.gradient.zero_();
      for (const int row : orders_.at(parameter.name)) {
        parameter.gradient.add_(gradients[static_cast<std::size_t>(row)].at(parameter.name));
      }
    }
    const at::NoGradGuard no_grad;
    optimizer_.Update(parameters_);
    for (std::size_t i = 0; i < working_.size(); ++i) {
      const auto masters = model_.stages[i]->named_parameters();
      for (auto& parameter : working_[i]->named_parameters()) {
        parameter.value().copy_(masters[parameter.key()]);
      }
    }
    return sum / rows;
  }

  TrainConfig config_;
  std::map<std::string, std::vector<int>> orders_;
  LanguageModel model_;
  std::vector<std::shared_ptr<StageModule>> working_;  // what is computed with
  AdamW optimizer_;
  std::vector<NamedParameter> parameters_;
};

// What the pipeline and the reference make of one schedule.
struct Both {
  Trained pipeline, reference;
};

Both TrainBoth(TrainConfig config, const Schedule& schedule) {
  at::set_num_threads(1);
  config.pipeline.microbatches = schedule.microbatches;
  const std::vector<std::uint8_t> text = Text();
  const BatchSource source =
      MakeBatchSource(Sampler(text, config.model.sequence, config.seed), config);
  const Pipeline pipeline = BuildPipeline(config, schedule, source).value();
  Both both;
  both.pipeline.losses.resize(kSteps);
  RunOptions options;
  options.steps = kSteps;
  options.on_thread_start = [](int) { at::set_num_threads(1); };
  const int last_rank = schedule.placement.rank_of(schedule.stages() - 1);
  options.on_step = [&](int rank, std::int64_t step) {
    if (rank == last_rank) {
      both.pipeline.losses[static_cast<std::size_t>(step)] = pipeline.last().StepLoss();
    }
  };
  const std::vector<Stage*> stages = pipeline.pointers();
  const Status status = RunRanks(schedule, stages, options);
  EXPECT_TRUE(status) << status.error().message;
  both.pipeline.parameters = ByName(pipeline.model);

  // Something was trained: no parameter is where it began.
  const LanguageModel start = LanguageModel::Build(config.model).value();
  for (const auto& [name, value] : start.Parameters()) {
    EXPECT_FALSE(at::equal(value, both.pipeline.parameters.at(name))) << name;
  }

  std::map<std::string, std::vector<int>> orders;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    for (const auto& parameter :
         pipeline.model.stages[static_cast<std::size_t>(stage)]->named_parameters()) {
      orders[parameter.key()] = OrderOfGradients(schedule, stage);
    }
  }
  both.reference = Reference(config, std::move(orders)).Run(source);
  return both;
}

void ExpectEqual(const Trained& actual, const Trained& expected) {
  EXPECT_EQ(actual.losses, expected.losses);
  ASSERT_EQ(actual.parameters.size(), expected.parameters.size());
  for (const auto& [name, value] : expected.parameters) {
    EXPECT_TRUE(at::equal(actual.parameters.at(name), value)) << name;
  }
}

bool Trainable(const Schedule& schedule) {
  return schedule.placement.replicas() == 1 && schedule.cuts == 1 && schedule.steps == 1 &&
         schedule.weights == WeightPolicy::kFlush;
}

// Layers of `stages` stages, 1 to 2 each, drawn at random.
std::vector<std::int64_t> UnevenLayers(std::mt19937& random, int stages) {
  std::vector<std::int64_t> layers;
  for (int stage = 0; stage < stages; ++stage) {
    layers.push_back(1 + static_cast<std::int64_t>(random() % 4 == 0));
  }
  return layers;
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const Algorithm& algorithm : Catalog()) names.emplace_back(algorithm.name);
  return names;
}

class Parity : public testing::TestWithParam<std::string> {};

TEST_P(Parity, TrainsAsOneRankDoes) {
  std::mt19937 random(static_cast<unsigned>(std::hash<std::string>()(GetParam())));
  int cases = 0;
  for (int attempt = 0; attempt < 40 && cases < 2; ++attempt) {
    ScheduleParams params;
    params.ranks = 1 + static_cast<int>(random() % 4);
    params.chunks = random() % 2 == 0 ? 0 : 1 + static_cast<int>(random() % 2);
    params.microbatches = 1 + static_cast<int>(random() % 9);
    const auto schedule = Generate(GetParam(), params);
    if (!schedule || schedule->stages() > 6) continue;
    if (!Trainable(*schedule)) GTEST_SKIP() << "a kind of schedule that training refuses";
    ++cases;
    SCOPED_TRACE(fmt::format("p={} v={} m={}", params.ranks, schedule->placement.chunks(),
                             params.microbatches));
    TrainConfig config = TinyConfig();
    config.seed = config.model.seed = random();
    config.pipeline.stage_layers = UnevenLayers(random, schedule->stages());
    config.model.layers = 0;
    for (const std::int64_t count : config.pipeline.stage_layers) config.model.layers += count;
    if (cases == 2) {
      config.model.dropout = 0.25;
      config.recompute = {"least", "least"};
      if (random() % 2 == 0) config.precision = "bf16";
    }
    const Both both = TrainBoth(config, attempt % 2 == 0 ? *schedule : AddCommunication(*schedule));
    ExpectEqual(both.pipeline, both.reference);
  }
  EXPECT_GT(cases, 0) << "no small parameters that the algorithm takes";
}

INSTANTIATE_TEST_SUITE_P(Catalog, Parity, testing::ValuesIn(Names()), [](const auto& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

// Any order of rows that the dependencies allow, with B cut in I and W here and there.
TEST(AnySchedule, TrainsAnyValidOrder) {
  Schedule schedule;
  schedule.placement = Placement::Vee(2);
  schedule.microbatches = 3;
  schedule.lanes.resize(2);
  // Stages 0 and 3 on rank 0, 1 and 2 on rank 1.
  schedule.lanes[0] = {Forward(0, 2),  Forward(0, 0),       Forward(0, 1),        Forward(3, 2),
                       Forward(3, 0),  BackwardInput(3, 0), Backward(3, 2),       Forward(3, 1),
                       Backward(3, 1), Backward(0, 1),      BackwardWeight(3, 0), Backward(0, 0),
                       Backward(0, 2)};
  schedule.lanes[1] = {Forward(1, 2),  Forward(2, 2),  Forward(1, 0),  Forward(2, 0),
                       Forward(1, 1),  Forward(2, 1),  Backward(2, 0), BackwardInput(2, 2),
                       Backward(2, 1), Backward(1, 1), Backward(1, 0), BackwardWeight(2, 2),
                       Backward(1, 2)};
  TrainConfig config = TinyConfig();
  config.model.layers = 5;
  config.pipeline.stage_layers = {1, 2, 1, 1};
  const Both both = TrainBoth(config, schedule);
  ExpectEqual(both.pipeline, both.reference);
}

TEST(AnySchedule, AThrowingStageFailsTheRunWithItsAction) {
  TrainConfig config = TinyConfig();
  config.pipeline.microbatches = 4;
  const std::vector<std::uint8_t> text = Text();
  BatchSource source = MakeBatchSource(Sampler(text, config.model.sequence, 1), config);
  source.targets = [targets = source.targets](std::int64_t step, int row) {
    if (step == 1 && row == 2) throw std::runtime_error("the disk is gone");
    return targets(step, row);
  };
  ScheduleParams params;
  params.ranks = 4;
  params.microbatches = 4;
  const Schedule schedule = Generate("1f1b", params).value();
  const auto pipeline = BuildPipeline(config, schedule, source).value();
  RunOptions options;
  options.steps = kSteps;
  const Status status = RunRanks(schedule, pipeline.pointers(), options);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(status.error().message.find("rank 3: 3F2: the disk is gone"), std::string::npos)
      << status.error().message;
}

}  // namespace
}  // namespace penstock
