// Tensor ranks that are processes of their own train bitwise as threads of one process do.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <atomic>

#include "config/run_schedule.h"
#include "runtime/executor/run.h"
#include "tests/engine/train/run/processes_run.h"
#include "tests/engine/train/tiny_run.h"
#include "tests/results.h"
#include "train/run/pipeline.h"

namespace penstock {
namespace {

// Divisions of the ranks among processes. The first two place tensor ranks on different processes.
enum class Across { kTensor, kAll, kPipeline };
struct ProcessDivision {
  int processes;
  Across across;
};

class TensorProcesses : public ProcessesRun {
 protected:
  TensorProcesses() {
    base_.insert(base_.end(), {"device=cpu", "ranks=2", "stages=2", "parallel.tensor=2"});
  }

  void Divide(Across across) {
    process_of_ = {};  // consecutive ranks
    if (across == Across::kTensor) {
      process_of_ = [](const TrainConfig& config, int rank, int processes) {
        return rank % config.parallel.tensor % processes;
      };
    }
    if (across == Across::kPipeline) process_of_ = ProcessOf;
  }
};

TEST_F(TensorProcesses, GiveTheBitsOfThreads) {
  const std::vector<ProcessDivision> four = {
      {4, Across::kAll}, {2, Across::kAll}, {3, Across::kAll}, {2, Across::kTensor}};
  const std::vector<ProcessDivision> eight = {{8, Across::kAll}, {2, Across::kPipeline}};
  const std::vector<std::pair<std::vector<ProcessDivision>, std::vector<std::string>>> runs = {
      {four, {"schedule=1f1b", "clip=0.5", "validation.freq=2"}},
      {{{4, Across::kAll}},
       {"schedule=zbv", "stages=4", "dropout=0", "precision=bf16", "recompute.hold=least"}},
      {{{2, Across::kTensor}}, {"schedule=zb-h1", "clip=0.5", "post_validation=true", "lr=0.1"}},
      {{{2, Across::kTensor}}, {"schedule=dualpipe", "clip=0.5"}},
      // The first and the last stage share the embedding; four ranks share two heads.
      {{{8, Across::kAll}, {3, Across::kAll}},
       {"model.name=qwen3", "tied=true", "heads=4", "kv_heads=2", "tensor=4", "clip=0.5"}},
      {{{4, Across::kAll}}, {"model.name=mixtral", "schedule=1f1b"}},
      {{{4, Across::kAll}, {3, Across::kAll}},
       {"schedule=1f1b", "parallel.tensor=1", "parallel.context=2", "clip=0.5"}},
      {{{8, Across::kAll}, {2, Across::kTensor}},
       {"schedule=zb-h1", "parallel.context=2", "context_exchange=ring", "clip=0.5"}},
      {eight, {"schedule=1f1b", "parallel.data=2", "clip=0.5"}},
      {{{4, Across::kAll}}, {"schedule=1f1b", "parallel.data=2", "parallel.zero=1"}},
      {{{2, Across::kTensor}},
       {"schedule=interleaved", "chunks=2", "parallel.data=2", "parallel.zero=2", "clip=0.5"}},
      {{{4, Across::kAll}},
       {"schedule=zbv", "stages=4", "parallel.data=2", "parallel.zero=3", "clip=0.5",
        "post_validation=true", "precision=bf16", "lr=0.1"}},
  };
  for (const auto& [divisions, options] : runs) {
    for (const auto& [processes, across] : divisions) {
      Divide(across);
      ExpectSameRun(options, processes);
      if (HasFailure()) {
        FAIL() << fmt::format("{} on {} processes", fmt::join(options, " "), processes);
      }
    }
  }
}

TEST_F(TensorProcesses, ResumeOnAnyProcesses) {
  const std::vector<std::string> options = {"schedule=1f1b", "clip=0.5", "dropout=0"};
  ValueOf(RunAlone(options));
  const Outcome whole = Collect("run");
  for (const auto& [processes, across] :
       {ProcessDivision{4, Across::kAll}, ProcessDivision{2, Across::kTensor},
        ProcessDivision{1, Across::kPipeline}}) {
    SCOPED_TRACE(processes);
    Divide(across);
    // From the checkpoint of the previous division.
    RunWell(With(options, {"resume=" + At("run", 2)}), processes);
    ExpectSame(Collect("run"), whole);
  }
}

// The runs that resume from the last step only restore and write their state.
TEST_F(TensorProcesses, EveryDivisionReadsAndWritesTheSameState) {
  const std::vector<std::string> model = {"model.name=gpt2", "heads=4", "dropout=0"};
  const std::vector<std::pair<ProcessDivision, std::vector<std::string>>> layouts = {
      {{4, Across::kAll}, {"parallel.tensor=2"}},
      {{4, Across::kTensor}, {"parallel.tensor=4", "parallel.data=2", "parallel.zero=3"}},
      {{2, Across::kAll}, {"ranks=4", "stages=4", "parallel.tensor=1"}},
      {{3, Across::kAll}, {"schedule=zbv", "stages=4", "parallel.data=2", "parallel.zero=1"}},
      {{1, Across::kAll}, {"ranks=1", "stages=1", "parallel.tensor=1"}},
  };
  std::map<std::string, at::Tensor> state, weights;
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const auto& [division, options] = layouts[i];
    SCOPED_TRACE(fmt::format("{}", fmt::join(options, " ")));
    Divide(division.across);
    const std::string name = fmt::format("run{}", i);
    const std::string from = i == 0 ? "" : At(fmt::format("run{}", i - 1), 5);
    RunWell(With(With(model, options), {"name=" + name, "resume=" + from}), division.processes);
    if (i == 0) {
      state = AllTensors(At(name, 5));
      weights = AllTensors(Folder(name) + "/model.safetensors");
    }
    ExpectSameTensors(AllTensors(At(name, 5)), state);
    ExpectSameTensors(AllTensors(Folder(name) + "/model.safetensors"), weights);
    if (HasFailure()) return;
  }
}

TEST_F(TensorProcesses, LogTheProcessOfEachRank) {
  Divide(Across::kAll);
  RunWell({"schedule=1f1b", "parallel.data=2", "parallel.zero=2"}, 4);
  const std::string log = Log();
  EXPECT_TRUE(Contains(log, "mesh: 8 ranks = 2 data x 2 pipeline x 2 tensor, 4 processes"));
  EXPECT_TRUE(Contains(log, "rank 5: data 1, pipeline 0, tensor 1, process 2"));
  EXPECT_TRUE(Contains(log, "  rank 7: weights "));  // its memory
}

// Only the first plane has a timeline, but process 1 has the second one.
TEST_F(TensorProcesses, AnyOfThemCanRequestATimeline) {
  Divide(Across::kTensor);
  std::array<std::atomic<bool>, 2> requests{};
  requests[1] = true;
  RunWell({"schedule=1f1b"}, 2, requests);
  EXPECT_FALSE(requests[1]);
  int timelines = 0;
  for (int step = 0; step < 5; ++step) {
    timelines += std::filesystem::exists(Folder("run") + fmt::format("/trace-step-{}.json", step));
  }
  EXPECT_EQ(timelines, 1);
}

TEST_F(TensorProcesses, LossesThatAreNotFiniteEndAllOfThem) {
  Divide(Across::kAll);
  for (const auto& summary : RunOnProcesses({"optimizer.lr=1e38"}, nullptr, 4)) {
    EXPECT_TRUE(Refused(summary, "not finite"));
  }
}

TEST_F(TensorProcesses, AStopOnOneOfThemStopsAllWithACheckpoint) {
  Divide(Across::kTensor);
  const std::vector<std::string> options = {"schedule=1f1b", "every=0"};
  const auto summaries = StopAfterAStep(
      "run", [&](const std::atomic<bool>* stop) { return RunOnProcesses(options, stop); });
  for (const auto& summary : summaries) {
    ASSERT_TRUE(summary) << summary.error().line();
    EXPECT_EQ(summary->interrupted, summaries[0]->interrupted);
    EXPECT_EQ(summary->steps, summaries[0]->steps);
  }
  EXPECT_TRUE(!summaries[0]->interrupted || IsCheckpointFolder(summaries[0]->saved));
}

// Runs a model on four processes of one rank each: two stages, which two tensor ranks divide.
// `on_targets` is called by the last stage of the process. Returns the errors, by process.
std::vector<std::string> ErrorsOf(const std::function<void(int process)>& on_targets,
                                  const RunOptions& run_options) {
  constexpr int kRanks = 4;
  std::vector<std::string> errors(kRanks);
  OnEachProcess(MakeLocalProcesses(kRanks), [&](ProcessGroup& group) {
    TrainConfig config = TinyConfig();
    config.device = "cpu";
    config.pipeline.ranks = config.pipeline.stages = 2;
    config.parallel.tensor = 2;
    const Schedule schedule = ChooseSchedule(config, 1).value();
    Collectives processes(&group);
    const LocalRanks ranks = LocalRanks::Split(kRanks, kRanks, group.process()).value();
    const RunContext run{config, schedule, processes, ranks, {.log = nullptr}};
    const std::vector<std::uint8_t> text = Text();
    BatchSource source = MakeBatchSource(Sampler(text, config.model.sequence, 1), config);
    const auto fork = [targets = source.targets, tokens = source.tokens, &group, &on_targets] {
      return BatchSource{tokens, [=, &group, &on_targets](std::int64_t step, int microbatch) {
                           if (step == 1 && microbatch == 1) on_targets(group.process());
                           return targets(step, microbatch);
                         }};
    };
    source = fork();
    source.fork = fork;
    const Pipeline pipeline = BuildPipeline(run, source).value();
    RunOptions options = run_options;
    options.steps = 3;
    options.planes = 2;
    options.ranks = &ranks;
    options.group = &group;
    errors[group.process()] = LineOf(RunRanks(schedule, pipeline.pointers(), options));
  });
  return errors;
}

TEST(TensorProcessesFailure, EndsAllProcesses) {
  const auto fails = [](int process) {
    if (process == 3) throw std::runtime_error("the disk is gone");
  };
  for (const std::string& error : ErrorsOf(fails, {})) {
    EXPECT_EQ(error, "rank 3 (process 3): 1F1: the disk is gone");
  }
}

// The other tensor rank of the stage waits in a collective.
TEST(TensorProcessesFailure, AHungRankEndsAllProcesses) {
  std::atomic<bool> release{false};
  RunOptions options = {.watchdog = std::chrono::milliseconds(1000)};
  options.on_stuck = [&](const Error&) {
    release.store(true);
    release.notify_all();
  };
  const auto hangs = [&](int process) {
    if (process == 2) release.wait(false);
  };
  for (const std::string& error : ErrorsOf(hangs, options)) {
    EXPECT_TRUE(Contains(error, "no rank made progress for 1 s; rank "));
    EXPECT_TRUE(Contains(error, "rank 2 runs 1F1"));
    EXPECT_TRUE(Contains(error, "rank 3 runs 1F1"));
  }
}

}  // namespace
}  // namespace penstock
