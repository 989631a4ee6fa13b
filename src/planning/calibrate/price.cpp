#include "calibrate/price.h"

#include <algorithm>

#include "base/system/on_all_cores.h"
#include "scenario/fields.h"
#include "scenario/machine/machine_file.h"

namespace penstock {
namespace {

double PeakOf(const MeasuredRun& run, const StepEstimate& estimate) {
  switch (run.peak_of) {
    case MeasuredRun::PeakOf::kLast:
      return estimate.ranks.back().allocated();
    case MeasuredRun::PeakOf::kWorst:
      break;
  }
  return estimate.peak_bytes();
}

}  // namespace

std::vector<std::string_view> FixedColumns() {
  return {"model",         "layers",   "dim",           "hidden",         "heads",
          "kv_heads",      "head_dim", "latent",        "vocabulary",     "window",
          "experts",       "top_k",    "expert_hidden", "shared_experts", "dense_layers",
          "experts_every", "tied",     "gated",         "predictors",     "device",
          "nodes",         "sequence", "precision",     "samples",        "implementation",
          "release",       "set"};
}

void FillOpenFields(const Scenario& open, MeasuredRun& run) {
  for (const ScenarioField& field : ScenarioFields()) {
    FillFrom(field, open, run.scenario);
    if (!field.fit) FillFrom(field, run.usual, run.scenario);
  }
  // Constants that the user fitted come before the usual ones. Predict reports errors.
  static_cast<void>(FillFromMachine(run.scenario));
  for (const ScenarioField& field : ScenarioFields()) {
    FillFrom(field, run.usual, run.scenario);
  }
}

Result<Prediction> Predict(const MeasuredRun& run) {
  PENSTOCK_TRY(const StepEstimate estimate, EstimateStep(run.scenario));
  Prediction prediction;
  prediction.row = run.row;
  prediction.step_time = estimate.step_time;
  prediction.measured_step_time = run.step_time;
  // A measured rate counts the devices of the job, not idle ones.
  const int devices = estimate.devices - estimate.idle_devices;
  if (run.tokens_per_second_per_device) {
    prediction.measured_step_time = estimate.tokens / (*run.tokens_per_second_per_device * devices);
  }
  const double per_token = devices / estimate.tokens;
  prediction.device_seconds = prediction.step_time * per_token;
  prediction.measured_device_seconds = prediction.measured_step_time.value_or(0) * per_token;
  prediction.peak_bytes = PeakOf(run, estimate);
  prediction.measured_peak_bytes = run.peak_bytes;
  return prediction;
}

PricedRuns PriceRuns(MeasuredRuns runs, const std::vector<std::string_view>& columns) {
  std::vector<Result<Prediction>> predicted(runs.runs.size());
  OnAllCores(runs.runs.size(), [&](std::size_t i) {
    predicted[i] = Predict(runs.runs[i]);
    if (predicted[i]) predicted[i]->group = Describe(runs.runs[i], columns);
  });
  PricedRuns priced;
  priced.refused = std::move(runs.refused);
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    MeasuredRun& run = runs.runs[i];
    if (predicted[i]) {
      priced.runs.push_back(std::move(run));
      priced.predictions.push_back(*std::move(predicted[i]));
      continue;
    }
    priced.refused.push_back({run.row, run.line, ReasonOf(predicted[i].error())});
  }
  std::ranges::sort(priced.refused, {}, &RefusedRow::row);
  return priced;
}

}  // namespace penstock
