// The held-out loss during training: it changes nothing else, equals the checkpoint's, ends runs
// early, and chooses the best checkpoint.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/files.h"
#include "checkpoint/checkpoint_folder.h"
#include "tests/engine/train/run/processes_run.h"
#include "tests/results.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

class Validation : public ProcessesRun {
 protected:
  std::vector<HeldOutMetric> HeldOut(const std::string& run) const {
    return ReadHeldOut(Folder(run) + "/metrics.jsonl", 1000);
  }
  static std::string Text(const std::vector<HeldOutMetric>& metrics) {
    std::string text;
    for (const HeldOutMetric& each : metrics)
      text += fmt::format("{} {:a}\n", each.step, each.loss);
    return text;
  }
  static HeldOutMetric Lowest(const std::vector<HeldOutMetric>& metrics) {
    return *std::ranges::min_element(metrics, {}, &HeldOutMetric::loss);
  }
  std::set<std::string> Checkpoints(const std::string& run) const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(CheckpointFolder(Folder(run)))) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }
};

TEST_F(Validation, TrainsToTheSameBitsAndHasTheLossOfTheCheckpoint) {
  const std::vector<std::vector<std::string>> runs = {
      {"schedule=1f1b"},
      {"schedule=interleaved", "ranks=2", "stages=4", "chunks=2"},
      {"schedule=dualpipe", "ranks=2"},
      {"schedule=pipedream"},
      {"schedule=1f1b", "clip=0.1", "post_validation=true"},
      {"schedule=1f1b", "ranks=2", "data=2", "zero=1", "precision=bf16"},
      {"schedule=1f1b", "ranks=2", "data=2", "zero=3"},
      {"model.name=qwen3_moe", "schedule=1f1b", "ranks=2", "expert=2", "zero=2"},
      {"schedule=1f1b", "ranks=2", "data=2", "zero=3", "precision=bf16"}};
  for (const std::vector<std::string>& options : runs) {
    const std::string what = fmt::format("{}", fmt::join(options, " "));
    ASSERT_TRUE(RunAlone(options)) << what;
    const Outcome plain = CollectAndRemove("run");
    const auto summary = RunAlone(With(options, {"validation.freq=1", "name=other"}));
    ASSERT_TRUE(summary) << what << summary.error().line();
    const auto held_out = HeldOut("other");
    ASSERT_EQ(held_out.size(), 5U) << what;
    for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(held_out[i].step, static_cast<std::int64_t>(i));
    EXPECT_EQ(held_out.back().loss, summary->held_out_loss) << what;
    for (const std::int64_t step : {2, 4}) {
      const auto loss = Evaluate(At("other", step));
      EXPECT_EQ(loss.value().held_out_loss, held_out[step - 1].loss) << what;
    }
    const Outcome other = CollectAndRemove("other");
    EXPECT_EQ(other.metrics, plain.metrics) << what;
    ASSERT_EQ(other.tensors.size(), plain.tensors.size());
    for (auto a = plain.tensors.begin(), b = other.tensors.begin(); a != plain.tensors.end();
         ++a, ++b) {
      ExpectSameTensors(a->second, b->second);
    }
  }
}

TEST_F(Validation, IsTheSameOnSeveralProcesses) {
  const std::vector<std::string> options = {"validation.freq=2", "checkpoint.best=true"};
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{
           {}, {"ranks=2", "data=2", "zero=3", "precision=bf16"}}) {
    ASSERT_TRUE(RunAlone(With(options, more)));
    const std::string alone = Text(HeldOut("run"));
    EXPECT_EQ(HeldOut("run").size(), 2U);
    const Outcome expected = CollectAndRemove("run");
    RunWell(With(options, more));
    EXPECT_EQ(Text(HeldOut("run")), alone);
    EXPECT_EQ(BestStep(CheckpointFolder(Folder("run"))), Lowest(HeldOut("run")).step + 1);
    const Outcome outcome = CollectAndRemove("run");
    EXPECT_EQ(outcome.metrics, expected.metrics);
  }
}

TEST_F(Validation, StopsEarly) {
  // Without a learning rate, only the first evaluation is the lowest one.
  const std::vector<std::string> options = {"lr=0", "steps=50", "validation.freq=3",
                                            "validation.patience=2"};
  const auto check = [&](const std::vector<Result<TrainSummary>>& summaries) {
    for (const auto& summary : summaries) {
      ASSERT_TRUE(summary) << summary.error().line();
      EXPECT_FALSE(summary->interrupted);
      EXPECT_EQ(summary->steps, 9);
    }
    EXPECT_EQ(HeldOut("run").size(), 3U);
    EXPECT_NE(Log().find("stopped early after step 9"), std::string::npos) << Log();
    EXPECT_TRUE(fs::exists(Folder("run") + "/report.html"));
    // It has reached its end, unless it may go on longer.
    const auto again = ValueOf(RunAlone(With(options, {"resume=auto"})));
    EXPECT_EQ(again.steps, 9);
    EXPECT_EQ(RunAlone(With(options, {"resume=auto", "validation.patience=3"})).value().steps, 12);
    fs::remove_all(Folder("run"));
  };
  std::vector<Result<TrainSummary>> alone;
  alone.push_back(RunAlone(options));
  check(alone);
  check(RunOnProcesses(options));
}

TEST_F(Validation, KeepsTheBestCheckpoint) {
  // Which steps have a low loss depends on the processor, but at a high learning rate it is soon
  // random. Some rate has its lowest loss before the last steps.
  const std::vector<std::string> options = {"steps=10", "validation.freq=1", "checkpoint.best=true",
                                            "keep=1"};
  std::string rate;
  for (const char* const each : {"lr=2", "lr=3", "lr=4", "lr=5", "lr=6", "lr=7", "lr=8"}) {
    rate = each;
    ASSERT_TRUE(RunAlone(With(options, {rate})));
    const bool is_early = Lowest(HeldOut("run")).step < 8;
    fs::remove_all(Folder("run"));
    if (is_early) break;
  }
  for (const char* every : {"every=0", "every=1", "every=4"}) {
    EXPECT_TRUE(Succeeds(RunAlone(With(options, {rate, every}))));
    const HeldOutMetric lowest = Lowest(HeldOut("run"));
    ASSERT_LT(lowest.step, 8) << rate;
    const std::string folder = CheckpointFolder(Folder("run"));
    EXPECT_EQ(BestStep(folder), lowest.step + 1) << every;
    const auto best = ValueOf(Evaluate(BestPath(folder)));
    EXPECT_EQ(best.held_out_loss, lowest.loss) << every;
    EXPECT_EQ(best.step, lowest.step + 1) << every;
    const std::string name = fmt::format("step-{}", lowest.step + 1);
    EXPECT_EQ(Checkpoints("run"), (std::set<std::string>{"best", name, "step-10"})) << every;
    fs::remove_all(Folder("run"));
  }
}

TEST_F(Validation, ResumesWithTheBestLossAndThePatience) {
  const std::vector<std::string> options = {"lr=0.3", "steps=12", "validation.freq=2",
                                            "validation.patience=3", "checkpoint.best=true"};
  ASSERT_TRUE(RunAlone(With(options, {"name=whole"})));
  const std::string expected = Text(HeldOut("whole"));
  const HeldOutMetric lowest = Lowest(HeldOut("whole"));
  for (const std::int64_t step : {2, 4, 6}) {
    const std::string from = At("whole", step);
    // As after a kill before and after the evaluation that follows the checkpoint.
    for (const bool has_line : {true, false}) {
      const std::string metrics = ReadFile(Folder("whole") + "/metrics.jsonl").value();
      if (!has_line) {
        const std::size_t begin =
            metrics.find(fmt::format("{{\"step\":{},\"held_out_loss\"", step - 1));
        ASSERT_NE(begin, std::string::npos);
        ASSERT_TRUE(
            WriteFileAtomically(Folder("whole") + "/metrics.jsonl", metrics.substr(0, begin)));
      }
      EXPECT_TRUE(Succeeds(RunAlone(With(options, {"resume=" + from}))));
      EXPECT_EQ(Text(HeldOut("run")), expected) << step;
      if (step < lowest.step + 1) {
        EXPECT_EQ(BestStep(CheckpointFolder(Folder("run"))), lowest.step + 1);
      }
      ASSERT_TRUE(WriteFileAtomically(Folder("whole") + "/metrics.jsonl", metrics));
      fs::remove_all(Folder("run"));
    }
  }
}

TEST_F(Validation, RefusesWhatHasNoEffect) {
  for (const char* option : {"validation.patience=2", "checkpoint.best=true"}) {
    EXPECT_TRUE(Refused(RunAlone({option}), "validation.freq"));
  }
}

}  // namespace
}  // namespace penstock
