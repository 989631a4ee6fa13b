// StepLog: reports every step of a run when all ranks have ended it: the line of progress, a line
// of metrics.jsonl, and its trace where that is asked for. The leader of the hosts reports; the
// others send it what their ranks know.
//
// Threads: AfterStep and AfterVerdict from the ranks' threads, the rest while no rank runs.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/hosts/collectives.h"
#include "runtime/hosts/hosted_ranks.h"
#include "runtime/measure/trace.h"
#include "runtime/update/update.h"
#include "train/config.h"
#include "train/log/metrics.h"
#include "train/log/progress.h"
#include "train/log/step_part.h"
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
  // `config`, `rate`, `hosts` and `ranks` must outlive the log, and so must `folder`, which only
  // the leader has. Time continues from the start's.
  struct Place {
    const TrainConfig& config;
    const RunFolder* folder;
    const LearningRate& rate;
    Collectives& hosts;
    const HostedRanks& ranks;
  };
  StepLog(const Place& place, const RunStart& start, std::FILE* out);

  // The next steps, from `first` on and of `total` in the run as far as is known, are in `trace`.
  // On all hosts.
  void Begin(Trace& trace, std::int64_t first, std::int64_t total);
  // `steps` steps since Begin were run, on all hosts: at the leader waits until all are reported.
  // Errors: where a file cannot be written; the reason of an abort of the group.
  Status End(std::int64_t steps);

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
  static void AddRank(const Trace& trace, int rank, std::int64_t round, StepPart& step);
  static void AddStreamed(const Trace& trace, int rank, std::int64_t behind_first, StepPart& step);
  // At the leader adds the part to the step's, elsewhere sends it there.
  void Add(std::int64_t step, const StepPart& part, int rank);
  // Reports the step if all is there that belongs to it.
  void ReportIfComplete(std::int64_t step);
  void OnFrame(std::int64_t step, const Message& message);
  bool WantsTrace(std::int64_t step) const;
  Status Report(std::int64_t step, const StepPart& ended);

  const TrainConfig& config_;
  const Place place_;
  const bool has_verdicts_;
  const std::string folder_;
  Trace* trace_ = nullptr;
  std::int64_t first_ = 0;
  std::int64_t total_ = 0;

  std::mutex mutex_;  // guards what follows while ranks run
  std::condition_variable changed_;
  std::map<std::int64_t, StepPart> open_;
  std::int64_t reported_ = 0;  // steps, since Begin
  Status failure_;             // of a report that no rank's thread has made
  Progress progress_;
  MetricsFile file_;
  std::vector<StepMetric> metrics_;
  std::vector<std::string> traces_;
  std::unique_ptr<Channel> channel_;  // of the steps since Begin; null for one host
};

}  // namespace penstock
