// What a user asks `penstock plan` for, on the command line or from Python.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/schedule/plan_schedule.h"
#include "plan/search/search.h"
#include "plan/search/training_run.h"
#include "plan/uncertainty/outlook.h"
#include "scenario/scenario.h"

namespace penstock {

struct PlanRequest {
  Scenario scenario;
  std::vector<int> chunks = {};     // stages per rank that are allowed; empty: the default
  std::optional<int> global_batch;  // samples of a step, of all replicas
  std::vector<std::string> schedules = {}, excluded = {};  // that are allowed, and that are not
  std::vector<std::string> precisions = {};   // that are allowed; empty: the scenario's
  std::optional<std::string> framework = {};  // whose plans are asked for
  // What a run trains ("1T"), and the price of a device per hour.
  std::optional<std::string> tokens = {};
  std::optional<double> price_per_hour = {};
  // Without a model: a configuration of `penstock simulate` with `layer_costs`.
  std::optional<std::string> costs = {};
  // How sure the choice is: samples of the constants of the cost model, and errors of these
  // ("link_efficiency=0.1").
  std::optional<int> samples = {}, seed = {};
  std::vector<std::string> uncertainty = {};
};

// Each refuses what has no effect on the question. Errors: kInvalidArgument about a field of the
// scenario, or about another member, by the name of its option ("global_batch", "for").
//
// Requires: the scenario has a model.
Result<TrainingRun> TrainingRunOf(const PlanRequest& request);
Result<PlanQuestion> ModelQuestionOf(const PlanRequest& request);
// Empty if there are no samples. Requires: the scenario has a model.
Result<std::optional<OutlookQuestion>> OutlookQuestionOf(const PlanRequest& request);
// Requires: it has none. Errors: also as ReadScenarioFile about the file of costs.
Result<ScheduleQuestion> ScheduleQuestionOf(const PlanRequest& request);

}  // namespace penstock
