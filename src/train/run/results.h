// The results of a run: predicted and measured figures, and files.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "monitor/metrics.h"
#include "runtime/measure/drift.h"
#include "runtime/measure/trace.h"
#include "runtime/processes/collectives.h"
#include "simulate/memory/memory_over_time.h"
#include "simulate/simulate.h"
#include "train/evaluation/language_model.h"
#include "train/train.h"

namespace penstock {

// Prediction and measurement of the same schedule, in seconds and bytes.
struct Comparison {
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
Result<Comparison> Compare(const Trace& trace, bool lengths_differ);

// Fills in the summary's figures per rank, table, step times and drift. `first_step` is the step of
// the trace's first round.
void Summarize(const Comparison& comparison, std::int64_t first_step, TrainSummary& summary);

struct RunRecord {
  TrainConfig config;
  const Schedule* schedule = nullptr;
  const LanguageModel* model = nullptr;
  const Comparison* comparison = nullptr;  // null if no step was run
  std::vector<StepMetric> metrics;
  std::vector<HeldOutMetric> held_out;  // during the run
  double seconds = 0;                   // of training
};

// The functions below write files to the run's folder and append their paths to summary.files. Each
// file appears completely or not at all. Errors: kUnavailable.

// Writes config.yaml and schedule.csv, which repeat the run.
Status WriteStartFiles(const RunRecord& record, TrainSummary& summary);
// Writes model.safetensors, the weights after summary.steps steps. Called on all processes.
Status WriteWeights(const RunRecord& record, Collectives& processes, TrainSummary& summary);
// Writes trace.json, report.html, loss.svg, and timeline.svg with the predicted and the measured
// timeline of each rank below each other. Writes nothing without a comparison.
Status WriteReports(const RunRecord& record, TrainSummary& summary);

}  // namespace penstock
