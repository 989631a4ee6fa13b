// StepLog: reports each step of a run after all ranks have ended it. Updates the progress line,
// appends a line to metrics.jsonl, and writes the step's trace if it is configured or requested.
// The leader of the processes reports; the other processes send it the parts of their ranks.
//
// Threads: AfterStep, AfterVerdict and elapsed are thread-safe. Requires for all other methods: no
// rank is running.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "monitor/metrics.h"
#include "runtime/measure/trace.h"
#include "runtime/update/update.h"
#include "train/log/progress.h"
#include "train/log/step_part.h"
#include "train/optimizer/optimizer.h"
#include "train/run/resume.h"
#include "train/run/run_context.h"

namespace penstock {

// The squared norm of a stage's gradients.
struct StageNorm {
  int stage = 0;
  double squared = 0;
};

class StepLog {
 public:
  // Metrics and training time continue from `start`. The run and the rate must outlive the log.
  StepLog(const RunContext& run, const LearningRate& rate, const RunStart& start);

  // Begins a block of steps, on all processes. The ranks record step `first` and the following ones
  // in `trace`. `total` is the number of steps of the run as currently estimated.
  void Begin(Trace& trace, std::int64_t first, std::int64_t total);
  // Ends a block of `steps` steps, on all processes. The leader waits until all of them are
  // reported. Errors: kUnavailable if a file cannot be written; the reason if the group is aborted.
  Status End(std::int64_t steps);

  // Called by a rank after it has ended the step. `loss` comes from the rank of the last stage;
  // `norms` has the norms of the rank's stages, which are used if the step has no verdict. Throws
  // std::runtime_error if a file cannot be written.
  void AfterStep(int rank, std::int64_t step, std::optional<double> loss,
                 std::span<const StageNorm> norms);
  // Passes a request for a timeline on, for a later step. Called by ranks that do not call
  // AfterStep.
  void PassTraceRequest();
  // Called with the verdict on the step's update if updates need the global gradient norm, before
  // or after the ranks end the step. Throws as AfterStep.
  void AfterVerdict(std::int64_t step, const Verdict& verdict);

  // Called between blocks with the held-out loss, and the seconds that it took, which do not count
  // as training. Errors: kUnavailable if a file cannot be written.
  Status AfterEvaluation(const HeldOutMetric& metric, bool is_best, double seconds);

  // Ends the progress line.
  void Finish();
  // Creates metrics.jsonl if no step has done so.
  Status OpenFile();

  double elapsed();  // seconds of training
  std::vector<StepMetric> metrics();
  std::vector<HeldOutMetric> held_out();
  std::vector<std::string> files();  // their paths

 private:
  enum Kind : std::int32_t { kPart, kTraceRequest };

  // Adds a part to the step on the leader; sends it to the leader elsewhere. `rank` is the rank of
  // the part, or -1 for a verdict and for parts of other processes.
  void Add(std::int64_t step, const StepPart& part, int rank) PENSTOCK_REQUIRES(mutex_);
  // Reports the step if it has all of its parts.
  void ReportIfComplete(std::int64_t step) PENSTOCK_REQUIRES(mutex_);
  void OnFrame(const FrameTag& tag, const Message& message);
  bool WantsTrace(std::int64_t step) const;
  bool TakeTraceRequest();
  bool SendsStamps(std::int64_t step) const;
  bool HasStepTimelines() const;  // of the block's schedule
  Status Report(std::int64_t step, const StepPart& ended) PENSTOCK_REQUIRES(mutex_);
  Status WriteTrace(std::int64_t step) PENSTOCK_REQUIRES(mutex_);
  void WriteRequestedTrace(std::int64_t step) PENSTOCK_REQUIRES(mutex_);

  const RunContext& run_;
  const LearningRate& rate_;
  const bool has_verdicts_;
  // State of the block. Set by Begin, constant while ranks run.
  Trace* trace_ = nullptr;
  std::int64_t first_ = 0;
  std::int64_t total_ = 0;

  Mutex mutex_;
  CondVar changed_;
  std::map<std::int64_t, StepPart> open_ PENSTOCK_GUARDED_BY(mutex_);  // steps not reported yet
  std::int64_t reported_ PENSTOCK_GUARDED_BY(mutex_) = 0;              // steps since Begin
  Status failure_
      PENSTOCK_GUARDED_BY(mutex_);  // of a report that a frame of another process caused
  Progress progress_ PENSTOCK_GUARDED_BY(mutex_);
  MetricsFile file_ PENSTOCK_GUARDED_BY(mutex_);
  std::vector<StepMetric> metrics_ PENSTOCK_GUARDED_BY(mutex_);  // without ranks
  std::vector<HeldOutMetric> held_out_ PENSTOCK_GUARDED_BY(mutex_);
  double last_seconds_ PENSTOCK_GUARDED_BY(mutex_) = 0;  // of the last step
  std::vector<std::string> traces_ PENSTOCK_GUARDED_BY(mutex_);
  bool trace_requested_ PENSTOCK_GUARDED_BY(mutex_) = false;  // by PassTraceRequest, on the leader
  std::unique_ptr<Channel> channel_;                          // of the block; null for one process
};

}  // namespace penstock
