// What a run leaves behind: its figures, predicted beside measured, and its files.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/hosts/collectives.h"
#include "runtime/measure/drift.h"
#include "runtime/measure/trace.h"
#include "simulate/memory.h"
#include "simulate/simulate.h"
#include "train/evaluation/language_model.h"
#include "train/log/metrics.h"
#include "train/train.h"

namespace penstock {

// Predicted and measured, of the same schedule and in seconds and bytes.
struct Comparison {
  SimulationResult predicted;
  Timeline predicted_timeline;
  SimulationResult measured;                 // medians over the kept steps
  Timeline measured_timeline;                // of the step that is the median one
  std::vector<MemoryCurve> measured_memory;  // of the same step
  Costs costs;                               // what the prediction is made from
  double step_time = 0;
  double predicted_step_time = 0;
  Drift drift;  // from the prediction's times
};

// The prediction is the simulator's, from the median time of each stage's actions in the trace; an
// optimizer update of the rank that starts the next step is added to its makespan for a step.
Result<Comparison> Compare(const Trace& trace);

// Fills the summary's figures by rank, its table, its step times and its drift; `first_step` is the
// number of the trace's first round.
void Summarize(const Comparison& comparison, std::int64_t first_step, TrainSummary& summary);

struct RunRecord {
  TrainConfig config;
  const Schedule* schedule = nullptr;
  const LanguageModel* model = nullptr;
  const Comparison* comparison = nullptr;  // null where no step was run
  std::vector<StepMetric> metrics;
  double seconds = 0;  // of training
};

// Below, files go to the run's folder and their paths to summary.files; each appears whole or not
// at all. Errors: kUnavailable.

// What ran, to run it again: config.yaml and schedule.csv.
Status WriteStartFiles(const RunRecord& record, TrainSummary& summary);
// The trained model: model.safetensors, after summary.steps steps. By all hosts.
Status WriteWeights(const RunRecord& record, Collectives& hosts, TrainSummary& summary);
// Where there is a comparison: trace.json, report.html, loss.svg, and timeline.svg with the
// predicted and the measured row of each rank below each other.
Status WriteReports(const RunRecord& record, TrainSummary& summary);

}  // namespace penstock
