// A training run on two processes, each with a part of the pipeline, gives the same bits as in one
// process.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>

#include "config/run_schedule.h"
#include "tests/engine/train/run/processes_run.h"
#include "tests/results.h"
#include "train/checkpoint/single_file.h"
#include "train/run/pipeline.h"

namespace penstock {
namespace {

class ProcessesTrain : public ProcessesRun {};

TEST_F(ProcessesTrain, GivesTheBitsOfOneProcess) {
  const std::vector<std::vector<std::string>> runs = {
      {"schedule=1f1b", "trace_steps=[1]"},
      {"schedule=zbv", "layers=8", "clip=0.5"},
      {"schedule=interleaved", "chunks=2", "layers=8", "clip=0.5", "post_validation=true"},
      {"schedule=dualpipe", "clip=0.5"},
      {"schedule=pipedream"},
      {"schedule=1f1b", "ranks=2", "parallel.data=2", "clip=0.5", "trace_steps=[1]"},
      {"schedule=zbv", "ranks=2", "parallel.data=4"},
      {"schedule=1f1b", "ranks=2", "parallel.data=4", "parallel.zero=1"},
      {"schedule=zbv", "ranks=2", "layers=8", "parallel.data=2", "parallel.zero=1", "clip=0.5",
       "post_validation=true"},
      {"schedule=interleaved", "ranks=2", "chunks=2", "parallel.data=2", "parallel.zero=2"},
      {"schedule=zbv", "ranks=2", "layers=8", "parallel.data=2", "parallel.zero=3", "clip=0.5",
       "post_validation=true", "precision=bf16", "lr=0.1"},
      // The first and the last stage, on different processes, hold copies of the embedding.
      {"schedule=1f1b", "model.name=gpt2", "clip=0.5"},
      {"schedule=1f1b", "ranks=2", "stages=2", "precision=bf16", "fuse=false"},
      // The ranks that divide the experts of a stage are on different processes.
      {"schedule=zbv", "ranks=2", "layers=8", "model.name=qwen3_moe", "parallel.expert=2"},
      {"schedule=dualpipev", "ranks=2", "layers=4", "model.name=deepseek_v3", "parallel.expert=2",
       "clip=0.5"},
      {"schedule=zbv", "layers=8", "shard_vocabulary=true", "vocabulary=301", "clip=0.5"},
      {"schedule=1f1b", "model.name=gpt2", "shard_vocabulary=true", "validation.freq=2"},
  };
  for (const std::vector<std::string>& options : runs) {
    ExpectSameRun(options);
    if (HasFailure()) FAIL() << fmt::format("{}", fmt::join(options, " "));
  }
}

TEST_F(ProcessesTrain, ShardsGiveTheBitsOfWholeState) {
  const std::vector<std::vector<std::string>> runs = {
      {"schedule=1f1b", "ranks=2", "parallel.data=4"},
      {"schedule=zbv", "ranks=2", "layers=8", "parallel.data=2", "clip=0.5"},
      {"schedule=interleaved", "ranks=2", "chunks=2", "parallel.data=2", "clip=0.5",
       "post_validation=true", "lr=0.1"},
      {"schedule=dualpipe", "microbatches=16", "parallel.data=2", "precision=bf16", "clip=0.5"},
      {"schedule=1f1b", "model.name=gpt2", "parallel.data=2", "clip=0.5"},
  };
  for (std::vector<std::string> options : runs) {
    SCOPED_TRACE(options.front());
    options.emplace_back("parallel.zero=0");
    ASSERT_TRUE(RunAlone(options));
    const Outcome whole = CollectAndRemove("run");
    // The two replicas in one pipeline of a bidirectional schedule are added in another order.
    const int most = options.front() == "schedule=dualpipe" ? 1 : 3;
    for (int zero = 1; zero <= most; ++zero) {
      SCOPED_TRACE(zero);
      options.back() = fmt::format("parallel.zero={}", zero);
      ASSERT_TRUE(RunAlone(options));
      const Outcome sharded = CollectAndRemove("run");
      EXPECT_EQ(whole.metrics, sharded.metrics);
      ASSERT_EQ(whole.tensors.size(), sharded.tensors.size());
      for (const auto& [file, tensors] : whole.tensors) {
        SCOPED_TRACE(file);
        ExpectSameTensors(tensors, sharded.tensors.at(file));
      }
    }
  }
}

TEST_F(ProcessesTrain, ResumesFromCheckpointsOfOneAndOfSeveralProcesses) {
  const std::vector<std::string> options = {"schedule=zbv", "layers=8", "clip=0.5"};
  ASSERT_TRUE(RunAlone(options));
  const Outcome whole = Collect("run");
  const std::string checkpoints = CheckpointFolder(runs() + "/run");
  const auto remove_from = [&](std::int64_t step) {
    const std::vector<StoredCheckpoint> all = ListCheckpoints(checkpoints).value();
    for (const StoredCheckpoint& stored : all) {
      if (stored.step >= step) RemoveCheckpoint(stored.path);
    }
    std::filesystem::remove(runs() + "/run/model.safetensors");
  };
  const std::vector<std::string> resumed = With(options, {"resume=auto"});
  remove_from(3);
  for (const TrainSummary& summary : RunWell(resumed)) EXPECT_EQ(summary.steps, 5);
  ExpectSame(Collect("run"), whole);
  remove_from(5);
  ASSERT_TRUE(RunAlone(resumed));
  ExpectSame(Collect("run"), whole);
}

TEST_F(ProcessesTrain, AStopOnOneProcessStopsAllWithACheckpoint) {
  const std::vector<std::string> options = {"schedule=1f1b", "every=0"};
  ASSERT_TRUE(RunAlone(options));
  const Outcome whole = CollectAndRemove("run");
  const auto summaries = StopAfterAStep(
      "run", [&](const std::atomic<bool>* stop) { return RunOnProcesses(options, stop); });
  for (const auto& summary : summaries) {
    ASSERT_TRUE(summary) << summary.error().line();
    EXPECT_EQ(summary->interrupted, summaries[0]->interrupted);
    EXPECT_EQ(summary->steps, summaries[0]->steps);
    EXPECT_EQ(summary->saved, summaries[0]->saved);
  }
  if (summaries[0]->steps == 5) return;  // it ended before the stop
  EXPECT_TRUE(summaries[0]->interrupted);
  EXPECT_TRUE(IsCheckpointFolder(summaries[0]->saved));
  ASSERT_TRUE(RunAlone(With(options, {"resume=auto"})));
  const Outcome end = Collect("run");
  EXPECT_EQ(end.metrics, whole.metrics);
  const std::string model = runs() + "/run/model.safetensors";
  ExpectSameTensors(whole.tensors.at(model), end.tensors.at(model));
}

TEST_F(ProcessesTrain, MetricsHaveTheFiguresOfAllRanksOfAllProcesses) {
  for (const std::string schedule : {"1f1b", "dualpipe", "pipedream"}) {
    const std::vector<std::string> options = {"schedule=" + schedule};
    const auto alone = ValueOf(RunAlone(options));
    const auto of_one = Metrics("run");
    std::filesystem::remove_all(runs());
    RunWell(options);
    const auto of_two = Metrics("run");
    ASSERT_EQ(of_two.size(), 5U);
    for (std::size_t step = 0; step < of_two.size(); ++step) {
      const StepMetric& metric = of_two[step];
      ASSERT_EQ(metric.ranks.size(), 4U);
      double least = 1;
      for (std::size_t rank = 0; rank < 4; ++rank) {
        const RankMetric& figures = metric.ranks[rank];
        EXPECT_GT(figures.busy, 0);
        EXPECT_GE(figures.bubble, 0);
        EXPECT_EQ(figures.peak_activation_bytes, of_one[step].ranks[rank].peak_activation_bytes);
        if (schedule != "pipedream") {
          EXPECT_EQ(figures.peak_activation_bytes, alone.per_rank[rank].peak_activation_bytes);
        }
        least = std::min(least, figures.bubble);
      }
      EXPECT_NEAR(least, metric.bubble, 1e-3);  // the busiest rank's
    }
    std::filesystem::remove_all(runs());
  }
}

TEST_F(ProcessesTrain, AnyProcessCanRequestATimeline) {
  for (int process = 0; process < kProcesses; ++process) {
    std::array<std::atomic<bool>, kProcesses> requests{};
    requests[process] = true;
    RunWell({"schedule=1f1b"}, kProcesses, requests);
    EXPECT_FALSE(requests[process]);
    const std::string path = runs() + "/run/trace-step-0.json";
    const std::string trace = ReadFile(path).value_or("");
    for (const char* action : {"\"0F0\"", "\"1B7\"", "\"2F3\"", "\"3B0\""}) {
      EXPECT_NE(trace.find(action), std::string::npos) << action << " " << process;
    }
    EXPECT_FALSE(std::filesystem::exists(runs() + "/run/trace-step-1.json"));
    std::filesystem::remove_all(runs());
  }
}

TEST_F(ProcessesTrain, RefusesProcessesOfDifferentRuns) {
  const auto groups = MakeLocalProcesses(kProcesses);
  OnEachProcess(groups, [&](ProcessGroup& group) {
    TrainOptions options = Options();
    options.group = &group;
    EXPECT_EQ(
        LineOf(Train(Config({group.process() == 0 ? "optimizer.lr=0.01" : "optimizer.lr=0.02"}),
                     options)),
        "optimizer.lr is 0.01 on process 0 and 0.02 on process 1: start all processes with "
        "the same");
  });
}

TEST_F(ProcessesTrain, AFailureOnOneProcessFailsAllWithItsReason) {
  const auto groups = MakeLocalProcesses(kProcesses);
  OnEachProcess(groups, [&](ProcessGroup& group) {
    TrainOptions options = Options();
    options.group = &group;
    EXPECT_TRUE(Refused(Train(Config({"optimizer.lr=1e38"}), options), "not finite"));
  });
}

TEST_F(ProcessesTrain, AProcessBuildsOnlyTheStagesOfItsRanks) {
  TrainConfig config = Config({"schedule=1f1b"});
  const Schedule schedule = ChooseSchedule(config, 1).value();
  const LocalRanks ranks = LocalRanks::Split(4, 2, 1).value();
  const std::vector<std::uint8_t> text(1000);
  const Sampler sampler(text, config.model.sequence, 1);
  Collectives alone(nullptr);
  const RunContext run{config, schedule, alone, ranks, {.log = nullptr}};
  const BatchSource source = MakeBatchSource(std::make_shared<const Sampler>(sampler), run);
  EXPECT_FALSE(source.tokens);
  EXPECT_TRUE(source.targets);
  const Pipeline pipeline = BuildPipeline(run, source).value();
  for (int stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(pipeline.stages[stage] != nullptr, stage >= 2) << stage;
    EXPECT_EQ(pipeline.model.stages[stage] != nullptr, stage >= 2) << stage;
    EXPECT_EQ(pipeline.optimizers[stage] != nullptr, stage >= 2) << stage;
  }
}

TEST_F(ProcessesTrain, SeveralProcessesWriteTheFileOfOne) {
  Safetensors whole;
  whole.metadata = {{"step", "3"}, {"note", "x"}};
  for (const char* name : {"a", "b.weight", "c", "z"}) {
    whole.tensors[name] = at::rand({3, static_cast<std::int64_t>(whole.tensors.size())});
  }
  const std::string alone = folder_ / "alone";
  ASSERT_TRUE(WriteSafetensors(alone, whole));
  const std::string together = folder_ / "together";
  const auto groups = MakeLocalProcesses(3);
  OnEachProcess(groups, [&](ProcessGroup& group) {
    Collectives processes(&group);
    Safetensors own;
    if (group.process() == 0) own.metadata = whole.metadata;
    int i = 0;
    for (const auto& [name, tensor] : whole.tensors) {
      // Both the first process and the last have "z".
      if (i++ % 3 == group.process() || (name == "z" && group.process() == 2))
        own.tensors[name] = tensor;
    }
    EXPECT_TRUE(Succeeds(WriteSingleFile(processes, together, own)));
    EXPECT_EQ(LineOf(WriteSingleFile(processes, folder_ / "no/folder", own)),
              fmt::format("process 0: cannot write {}: No such file or directory",
                          folder_ / "no/folder"));
  });
  EXPECT_EQ(ReadFile(together).value(), ReadFile(alone).value());
}

}  // namespace
}  // namespace penstock
