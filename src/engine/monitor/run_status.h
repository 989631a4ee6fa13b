// RunStatus: the figures of a run at one moment, from the files in its folder.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "monitor/metrics.h"
#include "monitor/run_description.h"
#include "monitor/stragglers.h"

namespace penstock {

enum class RunState {
  kWaiting,   // there is no run in the folder yet
  kStarting,  // its process has started and has not ended a step
  kRunning,
  kStopped,   // no process runs it, and steps are left
  kFinished,  // all steps are done
};
const char* StateName(RunState state);

// The step figures are over the last kRecentSteps steps, or as many as there are.
struct RunStatus {
  std::string folder;
  RunState state = RunState::kWaiting;
  RunDescription run;

  std::int64_t done = 0;               // steps
  std::optional<double> loss;          // mean of the finite ones; none before the first step
  std::optional<double> earlier_loss;  // the same of the steps before these
  double grad_norm = 0;                // of the last step, as the next one
  double lr = 0;
  double step_seconds = 0;  // mean time of a step
  double tokens_per_second = 0;
  double bubble = 0;              // median; of the busiest rank
  std::vector<RankMetric> ranks;  // medians, and the maximum of the peak
  std::vector<Straggler> stragglers;
  std::int64_t clipped = 0, skipped = 0;  // of all steps
  double seconds = 0;                     // of training
  std::optional<double> seconds_left;     // while it runs
  std::optional<double> age;              // seconds since the last step ended
  bool stalled = false;                   // it runs, and the next step takes much too long
  std::span<const StepMetric> metrics;    // of all steps
};

// What the files say, apart from the run's description and its metrics.
struct RunSigns {
  bool has_process = false;  // a process that may be alive has locked the folder
  double locked = 0;         // when it did, in seconds since 1970
  double changed = 0;        // when metrics.jsonl changed
  double now = 0;
  double weights = 0;  // when model.safetensors was written; 0: it was not
};

// Computes the figures. `metrics` must outlive the status.
RunStatus StatusOf(RunDescription run, std::span<const StepMetric> metrics, const RunSigns& signs);

}  // namespace penstock
