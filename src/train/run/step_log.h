// StepLog: reports every step of a run when all ranks have ended it: the line of progress, a line
// of metrics.jsonl, and its trace where that is asked for.
//
// Threads: AfterStep and AfterVerdict from the ranks' threads, the rest while no rank runs.
#pragma once

#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/measure/trace.h"
#include "runtime/update/update.h"
#include "train/config.h"
#include "train/log/metrics.h"
#include "train/log/progress.h"
#include "train/optimizer/optimizer.h"
#include "train/run/resume.h"
#include "train/run/run_folder.h"

namespace penstock {

// The squared norm of a stage's gradients.
struct StageNorm {
  int stage = 0;
  double squared = 0;
};

class StepLog {
 public:
  // `config`, `folder` and `rate` must outlive the log. Time continues from the start's.
  StepLog(const TrainConfig& config, const RunFolder& folder, const RunStart& start,
          const LearningRate& rate, std::FILE* out);

  // The next steps, from `first` on and of `total` in the run as far as is known, are in `trace`.
  void Begin(const Trace& trace, std::int64_t first, std::int64_t total);

  // On a rank's thread, when it has ended the step; `loss` from the rank that knows it, `norms` of
  // the rank's stages where no verdict comes. Throws std::runtime_error where a file cannot be
  // written.
  void AfterStep(int rank, std::int64_t step, std::optional<double> loss,
                 std::span<const StageNorm> norms);
  // What became of the step's update, where the configuration asks for the norm of all gradients:
  // before or after the ranks have ended the step. Throws as AfterStep.
  void AfterVerdict(std::int64_t step, const Verdict& verdict);

  // Ends the line of progress.
  void Finish() { progress_.Finish(); }
  // Makes metrics.jsonl where no step was run.
  Status OpenFile() { return file_.Open(); }

  double elapsed() const { return progress_.elapsed(); }  // seconds of training
  const std::vector<StepMetric>& metrics() const { return metrics_; }
  const std::vector<std::string>& traces() const { return traces_; }  // files written

 private:
  // A step that some ranks have ended.
  struct OpenStep {
    int ranks = 0;
    double loss = 0;
    std::int64_t busiest_ns = 0;
    std::int64_t start_ns = std::numeric_limits<std::int64_t>::max();
    std::int64_t end_ns = 0;
    double seconds = 0;
    std::map<int, double> squared_norms;  // by stage, so that they are added in one order
    std::optional<Verdict> verdict;

    double grad_norm() const;
    double bubble() const {
      const auto length = static_cast<double>(end_ns - start_ns);
      return length > 0 ? 1 - static_cast<double>(busiest_ns) / length : 0;
    }
  };

  static void AddRank(const Trace& trace, int rank, std::int64_t round, OpenStep& step);
  static void AddStreamed(const Trace& trace, int rank, std::int64_t behind_first, OpenStep& step);
  // Reports the step if all is there that belongs to it.
  void ReportIfComplete(std::int64_t step);
  Status Report(std::int64_t step, const OpenStep& ended);

  const TrainConfig& config_;
  const RunFolder& run_;
  const bool has_verdicts_;
  const LearningRate& rate_;
  const std::string folder_;
  const Trace* trace_ = nullptr;
  std::int64_t first_ = 0;
  std::int64_t total_ = 0;

  std::mutex mutex_;  // guards what follows while ranks run
  std::map<std::int64_t, OpenStep> open_;
  Progress progress_;
  MetricsFile file_;
  std::vector<StepMetric> metrics_;
  std::vector<std::string> traces_;
};

}  // namespace penstock
