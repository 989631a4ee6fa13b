// Training runs of a tiny model in one or several processes, which this process emulates.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <span>
#include <thread>

#include "base/files.h"
#include "checkpoint/checkpoint_folder.h"
#include "config/replicas.h"
#include "monitor/metrics.h"
#include "tests/engine/runtime/processes/local_processes.h"
#include "tests/engine/runtime/processes/on_processes.h"
#include "tests/engine/train/checkpoint/all_tensors.h"
#include "tests/engine/train/sentences.h"
#include "tests/engine/train/temp_folder.h"
#include "tests/engine/train/tested_device.h"
#include "tests/results.h"
#include "train/train.h"

namespace penstock {

inline constexpr int kProcesses = 2;

class ProcessesRun : public testing::Test {
 protected:
  ProcessesRun() : log_(std::fopen((folder_ / "log").c_str(), "w")) {
    text_ = folder_.Write("text", Sentences());
  }
  ~ProcessesRun() override { std::fclose(log_); }

  std::string Log() const {
    std::fflush(log_);
    return ReadFile(folder_ / "log").value();
  }

  std::string runs() const { return folder_ / "runs"; }
  std::string Folder(const std::string& run) const { return runs() + "/" + run; }
  std::string At(const std::string& run, std::int64_t step) const {
    return CheckpointPath(CheckpointFolder(Folder(run)), step);
  }
  std::vector<StepMetric> Metrics(const std::string& run) const {
    return ReadMetrics(Folder(run) + "/metrics.jsonl", 1000);
  }

  // Later options replace earlier ones.
  static std::vector<std::string> With(std::vector<std::string> options,
                                       const std::vector<std::string>& more) {
    options.insert(options.end(), more.begin(), more.end());
    return options;
  }
  TrainConfig Config(const std::vector<std::string>& options) const {
    const std::vector<std::string> own = {"data.path=" + text_, "folder=" + runs(),
                                          "device=" + TestedDevice()};
    return ValueOf(ParseTrainConfig("", "none", With(With(own, base_), options)));
  }

  TrainOptions Options(const std::atomic<bool>* stop = nullptr) const {
    return {.log = log_, .stop = stop, .cores = 1};
  }

  Result<TrainSummary> RunAlone(const std::vector<std::string>& options) const {
    return Train(Config(options), Options());
  }

  // Returns the error of a run that must fail.
  std::string ErrorOf(const std::vector<std::string>& options) const {
    return LineOf(RunAlone(options));
  }

  // Returns the process of a rank of all planes. Places neighboring ranks of the schedule on
  // different processes, or whole replicas of the pipeline if there are several.
  static int ProcessOf(const TrainConfig& config, int mesh_rank, int processes) {
    const int rank = mesh_rank / Planes(config.parallel).ranks();
    return (config.parallel.data > 1 ? rank / config.pipeline.ranks : rank) % processes;
  }

  // Divides the ranks by `process_of_`. Only the last process has the stop. `requests` are
  // TrainOptions::trace_request, by process.
  std::vector<Result<TrainSummary>> RunOnProcesses(
      const std::vector<std::string>& options, const std::atomic<bool>* stop = nullptr,
      int processes = kProcesses, std::span<std::atomic<bool>> requests = {}) const {
    const auto groups = MakeLocalProcesses(processes);
    std::vector<Result<TrainSummary>> summaries(processes, TrainSummary());
    OnEachProcess(groups, [&](ProcessGroup& group) {
      const TrainConfig config = Config(options);
      TrainOptions train = Options(group.process() == processes - 1 ? stop : nullptr);
      train.group = &group;
      if (!requests.empty()) train.trace_request = &requests[group.process()];
      const int ranks =
          config.parallel.data * config.pipeline.ranks * Planes(config.parallel).ranks();
      for (int rank = 0; rank < ranks && process_of_; ++rank) {
        train.process_of.push_back(process_of_(config, rank, processes));
      }
      summaries[group.process()] = Train(config, train);
    });
    return summaries;
  }

  std::vector<TrainSummary> RunWell(const std::vector<std::string>& options,
                                    int processes = kProcesses,
                                    std::span<std::atomic<bool>> requests = {}) const {
    std::vector<TrainSummary> summaries;
    for (auto& summary : RunOnProcesses(options, nullptr, processes, requests)) {
      summaries.push_back(ValueOf(std::move(summary)));
    }
    return summaries;
  }

  // Calls run(stop), and sets `stop` once the run has logged another step.
  template <class Run>
  auto StopAfterAStep(const std::string& run, const Run& call) const {
    std::atomic<bool> stop{false}, ended{false};
    const auto size = [path = Folder(run) + "/metrics.jsonl"]() -> std::uintmax_t {
      std::error_code error;
      const std::uintmax_t bytes = std::filesystem::file_size(path, error);
      return error ? 0 : bytes;
    };
    const std::uintmax_t before = size();
    std::thread watcher([&] {
      while (!stop && !ended) {
        stop = size() > before;
        std::this_thread::yield();
      }
    });
    auto result = call(&stop);
    ended = true;
    watcher.join();
    return result;
  }

  // A run on several processes gives the bits and the files of a run on one.
  void ExpectSameRun(const std::vector<std::string>& options, int processes = kProcesses) {
    const auto alone = ValueOf(RunAlone(options));
    const Outcome expected = CollectAndRemove("run");
    EXPECT_EQ(expected.metrics.size(), 5U);
    const std::vector<TrainSummary> summaries = RunWell(options, processes);
    for (const TrainSummary& summary : summaries) {
      EXPECT_EQ(summary.held_out_loss, alone.held_out_loss);
      EXPECT_EQ(summary.passage, alone.passage);
      EXPECT_EQ(summary.steps, alone.steps);
      EXPECT_EQ(summary.saved, alone.saved);
    }
    EXPECT_EQ(summaries[0].files, alone.files);
    EXPECT_EQ(summaries[0].baseline_loss, alone.baseline_loss);
    EXPECT_EQ(summaries[0].per_rank.size(), alone.per_rank.size());
    for (std::size_t rank = 0; rank < alone.per_rank.size(); ++rank) {
      EXPECT_EQ(summaries[0].per_rank[rank].peak_activation_bytes,
                alone.per_rank[rank].peak_activation_bytes);
    }
    for (const std::string& file : alone.files) {
      EXPECT_TRUE(std::filesystem::exists(file)) << file;
    }
    ExpectSame(CollectAndRemove("run"), expected);
  }

  // The results of a run that do not depend on time.
  struct Outcome {
    std::vector<std::string> metrics;
    std::map<std::string, std::string> infos;  // step and configuration, by checkpoint
    std::map<std::string, std::map<std::string, at::Tensor>> tensors;  // by checkpoint
  };
  Outcome Collect(const std::string& name) const {
    const std::string run = Folder(name);
    Outcome outcome;
    for (const StepMetric& metric : Metrics(name)) {
      outcome.metrics.push_back(fmt::format("{} {:a} {:a} {:a} {} {}", metric.step, metric.loss,
                                            metric.lr, metric.grad_norm, metric.clipped,
                                            metric.skipped));
    }
    const auto add = [&](const std::string& file) {
      Checkpoint checkpoint = OpenCheckpoint(file).value();
      EXPECT_TRUE(checkpoint.reader.Verify());
      outcome.infos[file] =
          fmt::format("{} {}", checkpoint.info.step, ToYaml(checkpoint.info.config));
      outcome.tensors[file] = AllTensors(file);
    };
    const std::vector<StoredCheckpoint> stored = ListCheckpoints(CheckpointFolder(run)).value();
    for (const StoredCheckpoint& checkpoint : stored) add(checkpoint.path);
    if (std::filesystem::exists(run + "/model.safetensors")) add(run + "/model.safetensors");
    return outcome;
  }
  Outcome CollectAndRemove(const std::string& name) const {
    Outcome outcome = Collect(name);
    std::filesystem::remove_all(Folder(name));
    return outcome;
  }

  static void ExpectSame(const Outcome& one, const Outcome& other) {
    EXPECT_EQ(one.metrics, other.metrics);
    EXPECT_EQ(one.infos, other.infos);
    ASSERT_EQ(one.tensors.size(), other.tensors.size());
    for (const auto& [file, tensors] : one.tensors) {
      SCOPED_TRACE(file);
      ExpectSameTensors(tensors, other.tensors.at(file));
    }
  }

  // A run on several processes, and one that resumes from step 2, have the bits of a whole run.
  void ExpectProcessesAndInterruptionsChangeNoBits(const std::vector<std::string>& options) const {
    ValueOf(RunAlone(options));
    const Outcome alone = CollectAndRemove("run");
    RunWell(options);
    ExpectSame(alone, Collect("run"));
    ValueOf(RunAlone(With(options, {"resume=" + At("run", 2)})));
    ExpectSame(alone, CollectAndRemove("run"));
  }

  // The process of a rank of all planes; empty: each process runs about the same number of ranks.
  std::function<int(const TrainConfig& config, int mesh_rank, int processes)> process_of_ =
      ProcessOf;
  TempFolder folder_;
  std::string text_;
  std::vector<std::string> base_ = {
      "dim=16",         "heads=2", "layers=4",  "sequence=16", "batch=1", "warmup=2", "ranks=4",
      "microbatches=8", "steps=5", "sample=12", "dropout=0.1", "every=2", "keep=0"};
  std::FILE* log_;
};

}  // namespace penstock
