// Runs whose microbatches differ in length (data.lengths).
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "config/run_schedule.h"
#include "config/sequence_lengths.h"
#include "runtime/executor/run.h"
#include "schedule/catalog.h"
#include "tests/engine/train/documents.h"
#include "tests/engine/train/run/processes_run.h"
#include "tests/results.h"
#include "train/data/training_data.h"
#include "train/run/pipeline.h"

namespace penstock {
namespace {

class Lengths : public ProcessesRun {
 protected:
  Lengths() { text_ = folder_.Write("fortunes", DistinctDocuments(600, 90)); }

  static std::vector<std::string> WithLengths(const std::vector<std::string>& more) {
    return With(more, {"data.lengths=16,64,32,8", "sequence=64", "batch=2"});
  }
};

at::Tensor LossOf(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.flatten(0, 1), targets.flatten());
}

// The reference: all stages on one thread with autograd, in the order of the microbatches.
class OneRank {
 public:
  explicit OneRank(const TrainConfig& config)
      : config_(config),
        model_(LanguageModel::Build(config.model, config.pipeline.stages).value()),
        optimizer_(std::make_shared<LearningRate>(LearningRate{config.optimizer, config.steps}),
                   1) {
    for (const auto& stage : model_.stages) {
      for (const auto& each : stage->named_parameters()) {
        parameters_.emplace_back(each.key(), each.value().detach(), at::zeros_like(each.value()));
      }
    }
  }

  // Returns the loss.
  double Step(const BatchSource& source, std::int64_t step) {
    const int count = config_.pipeline.microbatches;
    double sum = 0;
    for (int microbatch = 0; microbatch < count; ++microbatch) {
      const at::Tensor targets = source.targets(step, microbatch);
      const double share = static_cast<double>(targets.numel() * count) /
                           static_cast<double>(TokensPerStep(config_));
      std::vector<at::Tensor> values = {source.tokens(step, microbatch)};
      for (const auto& stage : model_.stages) values = stage->ForwardAll(values);
      const at::Tensor loss = LossOf(values.front(), targets);
      loss.backward(at::full({}, share / count));
      sum += static_cast<float>(share) * loss.item<float>();
    }
    std::size_t index = 0;
    for (const auto& stage : model_.stages) {
      for (const auto& each : stage->named_parameters()) {
        parameters_[index++].gradient.copy_(each.value().grad());
      }
      stage->zero_grad();
    }
    const at::NoGradGuard no_grad;
    optimizer_.Update(parameters_);
    return sum / count;
  }

  const LanguageModel& model() const { return model_; }

 private:
  TrainConfig config_;
  LanguageModel model_;
  Optimizer optimizer_;
  std::vector<NamedParameter> parameters_;
};

TEST_F(Lengths, TrainsLikeOneRank) {
  at::set_num_threads(1);
  for (const std::vector<std::string>& options : std::vector<std::vector<std::string>>{
           {"ranks=2", "schedule=1f1b"},
           {"ranks=2", "schedule=zb-h1", "document_mask=true"},
           {"ranks=2", "chunks=2", "stages=4", "schedule=interleaved"}}) {
    TrainConfig config = Config(WithLengths(options));
    config.model.options["dropout"] = "0";
    if (config.data.document_mask) config.model.document_end = 0;
    const Schedule schedule = ChooseSchedule(config, 2).value();
    SCOPED_TRACE(schedule.algorithm);
    const TrainingData data = LoadTrainingData(config).value();
    const BatchSource source = MakeBatchSource(data.samples, config);
    Pipeline pipeline = BuildPipeline(config, schedule, source).value();
    constexpr int kSteps = 2;
    std::vector<double> losses(kSteps);
    RunOptions run = {.steps = kSteps};
    run.on_thread_start = [](int) { at::set_num_threads(1); };
    run.on_step = [&](int rank, std::int64_t step) {
      if (rank == schedule.placement.rank_of(schedule.stages() - 1)) {
        losses[Index(step)] = pipeline.last().StepLoss();
      }
    };
    ASSERT_TRUE(RunRanks(schedule, pipeline.pointers(), run));
    OneRank reference(config);
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_EQ(losses[Index(step)], reference.Step(source, step));
    }
    const auto expected = reference.model().Parameters();
    const auto actual = pipeline.model.Parameters();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(at::equal(actual[i].second, expected[i].second)) << expected[i].first;
    }
  }
}

// Padding changes no prediction, and the loss of a microbatch is the mean over its real tokens.
TEST_F(Lengths, LossesAreThoseOfTheDocuments) {
  TrainConfig config = Config(WithLengths({}));
  ASSERT_TRUE(ChooseSchedule(config, 2));
  const TrainingData data = LoadTrainingData(config).value();
  const BatchSource source = MakeBatchSource(data.samples, config);
  const LanguageModel model = LanguageModel::Build(config.model).value();
  const std::vector<std::int64_t> lengths = MicrobatchLengths(config);
  for (int microbatch = 0; microbatch < config.pipeline.microbatches; ++microbatch) {
    const at::Tensor tokens = source.tokens(3, microbatch), targets = source.targets(3, microbatch);
    EXPECT_EQ(tokens.size(1), lengths[Index(microbatch)]);
    double sum = 0;
    std::int64_t count = 0;
    for (std::int64_t sample = 0; sample < config.batch; ++sample) {
      const std::int64_t real = (targets.select(0, sample) != kNoToken).sum().item<std::int64_t>();
      const auto document = [&](const at::Tensor& of) {
        return of.narrow(0, sample, 1).narrow(1, 0, real);
      };
      sum += model.Loss(document(tokens), document(targets)).item<double>() *
             static_cast<double>(real);
      count += real;
    }
    EXPECT_NEAR(model.Loss(tokens, targets).item<double>(), sum / static_cast<double>(count), 2e-6);
  }
}

// Messages between processes have the lengths of their microbatches, and replicas have other ones.
TEST_F(Lengths, ProcessesAndInterruptionsChangeNoBits) {
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{}, {"ranks=2", "data=2", "zero=2", "exact=false"}}) {
    ExpectProcessesAndInterruptionsChangeNoBits(WithLengths(more));
  }
}

// The held-out text is evaluated in windows, also one without documents of some length.
TEST_F(Lengths, EvaluationNeedsNoDocumentsOfEachLength) {
  const auto summary = ValueOf(RunAlone(WithLengths({})));
  EXPECT_EQ(Evaluate(Folder("run"))->held_out_loss, summary.held_out_loss);
  EXPECT_TRUE(
      Succeeds(Evaluate(Folder("run"), folder_.Write("short", DistinctDocuments(2000, 4)))));
}

// The prediction has the costs of each microbatch, so it knows which ones take more memory.
TEST_F(Lengths, ThePredictionDistinguishesMicrobatches) {
  const auto summary = ValueOf(RunAlone(WithLengths({"ranks=2", "microbatches=4"})));
  const auto longest =
      ValueOf(RunAlone({"sequence=64", "batch=2", "ranks=2", "microbatches=4", "name=longest"}));
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const RankSummary& figures = summary.per_rank[rank];
    EXPECT_EQ(figures.peak_activation_bytes, figures.predicted_peak_activation_bytes);
  }
  EXPECT_LT(summary.per_rank[0].peak_activation_bytes, longest.per_rank[0].peak_activation_bytes);
}

TEST_F(Lengths, RefusesWhatDoesNotCombine) {
  const auto error = [&](const std::vector<std::string>& more) {
    return LineOf(RunAlone(WithLengths(more)));
  };
  EXPECT_EQ(error({"schedule=seq1f1b", "slices=2"}),
            "data.lengths cannot be used with pipeline.slices: remove one of them");
  EXPECT_EQ(error({"schedule=pipedream"}),
            "data.lengths cannot be used with a schedule without a flush: remove one of them");
  EXPECT_EQ(error({"microbatches=6"}),
            "data.lengths: the microbatches of a step (6) are not a multiple of the 4 lengths");
  EXPECT_TRUE(Contains(error({"model.name=deepseek_v3", "predictor=1"}), "model.predictor"));
  EXPECT_EQ(LineOf(RunAlone({"data.lengths=8,16", "sequence=32"})),
            "data.lengths: the longest is 16, but model.sequence is 32; set it to 16");
}

}  // namespace
}  // namespace penstock
