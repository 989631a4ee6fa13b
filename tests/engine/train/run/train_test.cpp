// Whole small runs: their files, their errors, and that they are reproducible.
#include "train/train.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/files.h"
#include "monitor/metrics.h"
#include "tests/engine/train/sentences.h"
#include "tests/engine/train/temp_folder.h"
#include "tests/engine/train/tiny_run.h"
#include "tests/results.h"
#include "train/checkpoint/checkpoint.h"
#include "train/evaluation/language_model.h"
#include "train/run/run_folder.h"

namespace penstock {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

class TrainRun : public testing::Test {
 protected:
  TrainRun() { text_ = folder_.Write("text", Sentences()); }

  // Applies options of `penstock train` to a tiny model.
  Result<TrainConfig> Config(std::vector<std::string> options) {
    const std::vector<std::string> base = TinySettings(text_, folder_ / "runs");
    options.insert(options.begin(), base.begin(), base.end());
    return ParseTrainConfig("", "none", options);
  }

  Result<TrainSummary> Run(const std::vector<std::string>& options,
                           const std::atomic<bool>* stop = nullptr) {
    PENSTOCK_TRY(const TrainConfig config, Config(options));
    const std::unique_ptr<std::FILE, CloseFile> log(std::fopen((folder_ / "log").c_str(), "w"));
    return Train(config, {.log = log.get(), .stop = stop});
  }

  // Returns the error of a run that must fail. Checks that it leaves no files of a complete run.
  Error ErrorOf(const std::vector<std::string>& options) {
    const auto summary = Run(options);
    EXPECT_FALSE(summary);
    for (const std::string& name : FilesOf("run")) {
      EXPECT_TRUE(name == "metrics.jsonl" || name == "config.yaml" || name == "schedule.csv");
    }
    if (summary) return {};
    EXPECT_EQ(summary.error().line().find('\n'), std::string::npos) << summary.error().line();
    return summary.error();
  }

  std::set<std::string> FilesOf(const std::string& run) const {
    std::set<std::string> names;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "runs/" + run, error)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

  LanguageModel ModelOf(const std::string& run) const {
    Checkpoint checkpoint = OpenCheckpoint(folder_ / "runs/" + run).value();
    LanguageModel model = LanguageModel::Build(checkpoint.info.config.model).value();
    EXPECT_TRUE(SetWeights(checkpoint, model));
    return model;
  }

  static bool Same(const LanguageModel& one, const LanguageModel& other) {
    const auto a = one.Parameters(), b = other.Parameters();
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (a[i].first != b[i].first || !at::equal(a[i].second, b[i].second)) return false;
    }
    return a.size() == b.size();
  }

  TempFolder folder_;
  std::string text_;
};

// The checkpoint of each trained model can be read and evaluated, and generates text.
TEST_F(TrainRun, TrainsEveryModel) {
  for (const std::string_view model : ModelNames()) {
    SCOPED_TRACE(model);
    const std::string name(model);
    const auto summary =
        ValueOf(Run({"model.name=" + name, "name=" + name, "steps=40", "lr=0.01"}));
    EXPECT_LT(summary.held_out_loss, 4.5);  // log(256) = 5.55 at the start
    const std::string run = folder_ / "runs/" + name;
    const auto evaluated = ValueOf(Evaluate(run));
    EXPECT_EQ(evaluated.held_out_loss, summary.held_out_loss);
    const auto text = ValueOf(GenerateText(run, {.tokens = 20}));
    EXPECT_FALSE(text.text.empty());
  }
}

TEST_F(TrainRun, WritesAllFilesAndFigures) {
  const auto summary = ValueOf(Run({"steps=12"}));
  const std::set<std::string> expected = {"config.yaml",       "schedule.csv", "trace.json",
                                          "model.safetensors", "report.html",  "metrics.jsonl",
                                          "loss.svg",          "timeline.svg"};
  EXPECT_EQ(FilesOf("run"), expected);
  for (const std::string& file : summary.files) EXPECT_TRUE(std::filesystem::exists(file));
  EXPECT_EQ(summary.files.size(), expected.size());
  EXPECT_EQ(summary.steps, 12);
  EXPECT_EQ(summary.ranks, 2);
  EXPECT_FALSE(summary.passage.empty());
  ASSERT_EQ(summary.per_rank.size(), 2U);
  for (const RankSummary& rank : summary.per_rank) {
    EXPECT_GT(rank.busy, 0);
    EXPECT_GE(rank.bubble, 0);
    EXPECT_LE(rank.bubble, 1);
    EXPECT_GT(rank.peak_activation_bytes, 0);
    EXPECT_EQ(rank.peak_activation_bytes, rank.predicted_peak_activation_bytes);
  }
  std::istringstream metrics(ReadFile(folder_ / "runs/run/metrics.jsonl").value());
  std::string line;
  int lines = 0;
  for (; std::getline(metrics, line); ++lines) {
    EXPECT_EQ(nlohmann::json::parse(line).at("step").get<int>(), lines);
  }
  EXPECT_EQ(lines, 12);
  EXPECT_FALSE(nlohmann::json::parse(ReadFile(folder_ / "runs/run/trace.json").value()).empty());
}

TEST_F(TrainRun, ItsCheckpointHasTheSameLoss) {
  const auto summary = ValueOf(Run({}));
  const auto again = ValueOf(Evaluate(folder_ / "runs/run"));
  EXPECT_NEAR(again.held_out_loss, summary.held_out_loss, 1e-6);
  EXPECT_EQ(again.baseline_loss, summary.baseline_loss);
  EXPECT_EQ(again.step, 4);
  GenerateOptions options = {.prompt = "the ", .tokens = 30, .top_k = 20, .top_p = 0.9, .seed = 3};
  const auto text = ValueOf(GenerateText(folder_ / "runs/run", options));
  EXPECT_EQ(text.text, GenerateText(folder_ / "runs/run", options)->text);
  for (const auto& change : std::vector<std::function<void(GenerateOptions&)>>{
           [](auto& o) { o.tokens = -1; }, [](auto& o) { o.top_k = -1; },
           [](auto& o) { o.top_p = 0; }, [](auto& o) { o.temperature = -1; }}) {
    GenerateOptions wrong = options;
    change(wrong);
    EXPECT_FALSE(GenerateText(folder_ / "runs/run", wrong));
  }
  EXPECT_FALSE(GenerateText(folder_ / "runs/none", {}));
}

TEST_F(TrainRun, IsReproducibleOnAnyNumberOfRanks) {
  for (const std::vector<std::string>& options : std::vector<std::vector<std::string>>{
           {"name=one"},
           {"name=two"},
           {"name=four", "ranks=4", "schedule=1f1b"},  // microbatches in the same order
           {"name=uneven", "ranks=2", "schedule=1f1b", "stage_layers=3,1"},
           {"name=other", "seed=2"}}) {
    EXPECT_TRUE(Succeeds(Run(options)));
  }
  const LanguageModel one = ModelOf("one");
  EXPECT_TRUE(Same(one, ModelOf("two")));
  EXPECT_TRUE(Same(one, ModelOf("four")));
  EXPECT_TRUE(Same(one, ModelOf("uneven")));
  EXPECT_FALSE(Same(one, ModelOf("other")));
}

TEST_F(TrainRun, RunsAValidCsvAndRefusesABadOne) {
  // 1f1b on two ranks; the second CSV lacks its last action.
  const std::string good = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
  EXPECT_TRUE(Succeeds(Run({"name=csv", "ranks=auto", "csv=" + folder_.Write("good.csv", good)})));
  EXPECT_EQ(OpenCheckpoint(folder_ / "runs/csv")->info.config.pipeline.microbatches, 2);

  const std::string bad = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1\n";
  const Error error = ErrorOf({"csv=" + folder_.Write("bad.csv", bad)});
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_NE(error.line().find("1B1"), std::string::npos) << error.line();
  EXPECT_EQ(ErrorOf({"csv=" + folder_.Write("odd.csv", "0F0,hello\n")}).code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf({"csv=" + (folder_ / "none.csv")}).code, ErrorCode::kNotFound);
  EXPECT_EQ(ErrorOf({"ranks=3", "csv=" + (folder_ / "good.csv")}).code,
            ErrorCode::kInvalidArgument);
}

TEST_F(TrainRun, TrainsWithReplicasAndWithoutAFlush) {
  for (const std::string schedule : {"dualpipe", "chimera", "pipedream", "pipedream-2bw"}) {
    const auto summary = ValueOf(Run({"name=" + schedule, "schedule=" + schedule, "steps=7"}));
    EXPECT_EQ(summary.steps, 7);
    EXPECT_GT(summary.step_time, 0);
    EXPECT_GT(summary.predicted_step_time, 0);
    EXPECT_EQ(ReadMetrics(folder_ / ("runs/" + schedule + "/metrics.jsonl"), 100).size(), 7U);
  }
  // Without a flush and with a time limit, a run has several blocks.
  EXPECT_TRUE(Succeeds(Run({"name=limited", "schedule=2bw", "seconds=0.2", "steps=1000000"})));
  const auto code = [this](std::initializer_list<std::string> options) {
    return ErrorOf(options).code;
  };
  EXPECT_EQ(code({"schedule=2bw", "clip=1"}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({"schedule=pipedream", "trace_steps=1"}), ErrorCode::kInvalidArgument);
}

TEST_F(TrainRun, PostValidationClipsToTheSameWeights) {
  for (const std::vector<std::string>& options :
       std::vector<std::vector<std::string>>{{"name=any"},
                                             {"name=late", "clip=0.5"},
                                             {"name=early", "clip=0.5", "post_validation=true"}}) {
    EXPECT_TRUE(Succeeds(Run(options)));
  }
  EXPECT_TRUE(Same(ModelOf("late"), ModelOf("early")));
  EXPECT_FALSE(Same(ModelOf("late"), ModelOf("any")));
  EXPECT_EQ(ErrorOf({"nonfinite=maybe"}).code, ErrorCode::kInvalidArgument);
}

TEST_F(TrainRun, EndsAfterItsTimeLimit) {
  const auto summary = ValueOf(Run({"seconds=0.2", "steps=1000000"}));
  EXPECT_LT(summary.steps, 1000000);
}

TEST_F(TrainRun, RefusesInvalidRuns) {
  const auto code = [this](std::initializer_list<std::string> options) {
    return ErrorOf(options).code;
  };
  EXPECT_EQ(code({"schedule=1f2b"}), ErrorCode::kNotFound);
  EXPECT_EQ(code({"layers=3"}), ErrorCode::kInvalidArgument);  // for four stages
  EXPECT_EQ(code({"schedule=1f1b", "ranks=8"}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({"schedule=1f1b", "chunks=2"}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({"stage_layers=1,1"}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({"data.path=" + (folder_ / "none")}), ErrorCode::kNotFound);
  EXPECT_EQ(code({"data.path=" + folder_.Write("empty", "")}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({"data.path=" + folder_.Write("short", std::string(100, 'a') + "\n\nab\n")}),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({"folder=" + text_}), ErrorCode::kInvalidArgument);  // a file
  EXPECT_FALSE(std::filesystem::exists(folder_ / "runs/run"));
}

TEST_F(TrainRun, ALossThatIsNotFiniteFailsTheRun) {
  const Error error = ErrorOf({"lr=1e30", "steps=50"});
  EXPECT_EQ(error.code, ErrorCode::kUnavailable);
  EXPECT_NE(error.line().find("optimizer.lr"), std::string::npos) << error.line();
}

// Only the weights of the last step are out of range, so the training losses are finite.
TEST_F(TrainRun, AHeldOutLossThatIsNotFiniteFailsTheRun) {
  EXPECT_TRUE(Refused(Run({"lr=1e45", "steps=1"}), "held-out loss is ", ErrorCode::kUnavailable));
  EXPECT_EQ(FilesOf("run"), (std::set<std::string>{"config.yaml", "metrics.jsonl",
                                                   "model.safetensors", "schedule.csv"}));
}

TEST_F(TrainRun, ARunThatSkippedMostStepsFails) {
  EXPECT_TRUE(Refused(Run({"lr=1e9", "steps=20", "nonfinite=skip"}), "20 steps were skipped",
                      ErrorCode::kUnavailable));
  const auto metrics = ReadMetrics(folder_ / "runs/run/metrics.jsonl", 100);
  ASSERT_EQ(metrics.size(), 20U);
  EXPECT_FALSE(metrics.front().skipped);
  EXPECT_TRUE(metrics.back().skipped);
  // The schedule of learning rates follows the steps, skipped or not.
  EXPECT_DOUBLE_EQ(metrics.back().lr, 1e9 * 0.05);
}

TEST_F(TrainRun, MetricsHaveTheGradientNormOfEveryStep) {
  ASSERT_TRUE(Run({"name=plain"}));
  ASSERT_TRUE(Run({"name=late", "clip=1e9"}));
  ASSERT_TRUE(Run({"name=early", "clip=1e9", "post_validation=true"}));
  ASSERT_TRUE(Run({"name=clipped", "clip=0.01"}));
  for (const std::string schedule : {"dualpipe", "pipedream", "pipedream-2bw"}) {
    ASSERT_TRUE(Run({"name=" + schedule, "schedule=" + schedule}));
  }
  const auto of = [this](const std::string& run) {
    return ReadMetrics(folder_ / ("runs/" + run + "/metrics.jsonl"), 100);
  };
  const auto plain = of("plain");
  ASSERT_EQ(plain.size(), 4U);
  for (const std::string run : {"late", "early"}) {
    const auto metrics = of(run);
    ASSERT_EQ(metrics.size(), plain.size());
    for (std::size_t i = 0; i < plain.size(); ++i) {
      EXPECT_EQ(metrics[i].step, plain[i].step);
      EXPECT_NEAR(metrics[i].grad_norm, plain[i].grad_norm, 1e-9 * plain[i].grad_norm) << run;
      EXPECT_FALSE(metrics[i].clipped || metrics[i].skipped);
    }
  }
  EXPECT_NEAR(of("clipped").front().grad_norm, plain.front().grad_norm, 1e-6);  // before clipping
  for (const StepMetric& metric : of("clipped")) EXPECT_TRUE(metric.clipped);
  for (const std::string schedule : {"plain", "dualpipe", "pipedream", "pipedream-2bw"}) {
    for (const StepMetric& metric : of(schedule)) EXPECT_GT(metric.grad_norm, 0) << schedule;
  }
  EXPECT_NEAR(of("dualpipe").front().grad_norm, plain.front().grad_norm, 1e-4);
}

TEST_F(TrainRun, OnlyOneRunAtATimeUsesAFolder) {
  const std::string path = folder_ / "runs/run";
  {
    const auto held = RunFolder::Open(path, stderr);
    ASSERT_TRUE(held);
    EXPECT_TRUE(
        Refused(Run({}), fmt::format("process {} on ", getpid()), ErrorCode::kInvalidArgument));
    EXPECT_TRUE(Run({"name=other"}));
  }
  EXPECT_FALSE(std::filesystem::exists(path));  // nothing was written to it
  EXPECT_TRUE(Run({}));
  EXPECT_FALSE(std::filesystem::exists(path + "/.lock"));
}

TEST_F(TrainRun, NoticesADeletedOrMovedFolder) {
  const auto deleted = RunFolder::Open(folder_ / "runs/deleted", stderr);
  const auto moved = RunFolder::Open(folder_ / "runs/moved", stderr);
  ASSERT_TRUE(deleted && moved);
  EXPECT_TRUE((*deleted)->Check());
  std::filesystem::remove_all(folder_ / "runs/deleted");
  std::filesystem::rename(folder_ / "runs/moved", folder_ / "runs/elsewhere");
  const auto replacement = RunFolder::Open(folder_ / "runs/moved", stderr);
  ASSERT_TRUE(replacement);
  for (const auto* folder : {&deleted, &moved}) {
    EXPECT_TRUE(Refused((**folder)->Check(), "", ErrorCode::kUnavailable));
  }
}

TEST_F(TrainRun, AStopBeforeTheFirstStepLeavesNoFiles) {
  const std::atomic<bool> stop{true};
  const auto summary = ValueOf(Run({"steps=1000000"}, &stop));
  EXPECT_TRUE(summary.interrupted);
  EXPECT_EQ(summary.saved, "");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "runs/run"));
}

}  // namespace
}  // namespace penstock
