// Predictions of measured runs.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "calibrate/measured_run.h"
#include "calibrate/score.h"
#include "scenario/estimate/estimate_step.h"

namespace penstock {

// What a user does not choose: runs with equal values compete. `samples` is the global batch.
std::vector<std::string_view> FixedColumns();

// Returns the prediction of one run. Sets its measured time if the run has only a throughput.
Result<Prediction> Predict(const MeasuredRun& run);

// Sets the fields that a run leaves open: first to the values of `open`, then to the constants of
// its machine, then to the usual ones.
void FillOpenFields(const Scenario& open, MeasuredRun& run);

struct PricedRuns {
  std::vector<MeasuredRun> runs;        // that could be priced
  std::vector<Prediction> predictions;  // by run, with groups by `columns`
  std::vector<RefusedRow> refused;      // in order of rows
};

// Prices all runs on all cores.
PricedRuns PriceRuns(MeasuredRuns runs, const std::vector<std::string_view>& columns);

}  // namespace penstock
