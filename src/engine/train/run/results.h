// The results of a run: predicted and measured figures, and files.
#pragma once

#include <vector>

#include "base/result.h"
#include "runtime/measure/drift.h"
#include "runtime/measure/trace.h"
#include "simulate/memory/memory_over_time.h"
#include "simulate/simulate.h"
#include "train/evaluation/language_model.h"
#include "train/run/run_context.h"
#include "train/run/step_log.h"

namespace penstock {

// Prediction and measurement of the same schedule, in seconds and bytes.
struct Comparison {
  const Schedule* schedule = nullptr;  // of the trace, which must outlive this
  SimulationResult predicted;
  Timeline predicted_timeline;
  SimulationResult measured;                 // medians over the kept steps
  Timeline measured_timeline;                // of the step nearest to the median
  std::vector<MemoryCurve> measured_memory;  // of the same step
  Costs costs;                               // that the prediction uses
  double step_time = 0;
  double predicted_step_time = 0;
  Drift drift;  // from the predicted times
};

// Simulates the schedule with the median time of each stage's actions in the trace. The predicted
// step time is the makespan plus the optimizer update of the rank that starts the next step.
// `is_rolled_back`: whether post-validation rolls back the median step.
Result<Comparison> Compare(const Trace& trace, bool lengths_differ, bool is_rolled_back);

// Fills in the summary's figures per rank, table, step times and drift. `first_step` is the step of
// the trace's first round.
void Summarize(const Comparison& comparison, std::int64_t first_step, TrainSummary& summary);

// The functions below write files to the run's folder and append their paths to summary.files. Each
// file appears completely or not at all. Errors: kUnavailable.

// Writes config.yaml and schedule.csv, which repeat the run.
Status WriteStartFiles(const RunContext& run, TrainSummary& summary);
// Writes model.safetensors, the weights after summary.steps steps and `seconds` of training. Called
// on all processes.
Status WriteWeights(const RunContext& run, const LanguageModel& model, double seconds,
                    TrainSummary& summary);
// Writes trace.json, report.html, loss.svg, and timeline.svg with the predicted and the measured
// timeline of each rank below each other.
Status WriteReports(const RunContext& run, StepLog& log, const Comparison& comparison,
                    TrainSummary& summary);

}  // namespace penstock
