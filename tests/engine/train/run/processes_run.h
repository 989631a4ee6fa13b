// Training runs of a tiny model in one or several processes, which this process emulates.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <span>

#include "base/files.h"
#include "checkpoint/checkpoint_folder.h"
#include "monitor/metrics.h"
#include "runtime/processes/local_processes.h"
#include "tests/engine/runtime/processes/on_processes.h"
#include "tests/engine/train/checkpoint/all_tensors.h"
#include "tests/engine/train/sentences.h"
#include "tests/engine/train/temp_folder.h"
#include "tests/engine/train/tested_device.h"
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

  TrainConfig Config(const std::vector<std::string>& options) const {
    std::vector<std::string> all = {"data.path=" + text_,
                                    "folder=" + runs(),
                                    "dim=16",
                                    "heads=2",
                                    "layers=4",
                                    "sequence=16",
                                    "batch=1",
                                    "warmup=2",
                                    "ranks=4",
                                    "microbatches=8",
                                    "steps=5",
                                    "sample=12",
                                    "dropout=0.1",
                                    "every=2",
                                    "keep=0",
                                    "device=" + TestedDevice()};
    all.insert(all.end(), options.begin(), options.end());
    return ParseTrainConfig("", "none", all).value();
  }

  TrainOptions Options(const std::atomic<bool>* stop = nullptr) const {
    TrainOptions options;
    options.log = log_;
    options.cores = 1;
    options.stop = stop;
    return options;
  }

  Result<TrainSummary> RunAlone(const std::vector<std::string>& options) const {
    return Train(Config(options), Options());
  }

  // Places neighboring ranks on different processes, or whole replicas of the pipeline if there are
  // several. Only the last process has the stop. `requests` are TrainOptions::trace_request, by
  // process.
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
      const int replicas = config.parallel.data;
      for (int rank = 0; rank < replicas * config.pipeline.ranks; ++rank) {
        train.process_of.push_back((replicas > 1 ? rank / config.pipeline.ranks : rank) %
                                   processes);
      }
      summaries[group.process()] = Train(config, train);
    });
    return summaries;
  }

  // The results of a run that do not depend on time.
  struct Outcome {
    std::vector<std::string> metrics;
    std::map<std::string, std::string> infos;  // step and configuration, by checkpoint
    std::map<std::string, std::map<std::string, at::Tensor>> tensors;  // by checkpoint
  };
  Outcome Collect(const std::string& name) const {
    const std::string run = runs() + "/" + name;
    Outcome outcome;
    for (const StepMetric& metric : ReadMetrics(run + "/metrics.jsonl", 1000)) {
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
    std::filesystem::remove_all(runs() + "/" + name);
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

  TempFolder folder_;
  std::string text_;
  std::FILE* log_;
};

}  // namespace penstock
