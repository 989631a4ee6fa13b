// Plans: how to train a model, and the best schedule for costs, as `penstock plan` finds them.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <memory>

#include "bindings/core/binding.h"
#include "bindings/core/frozen_schedule.h"
#include "bindings/core/scenario_costs.h"
#include "bindings/core/until_signal.h"
#include "plan/figures/outlook_figures.h"
#include "plan/figures/schedule_figures.h"
#include "plan/figures/training_figures.h"
#include "plan/request/plan_request.h"
#include "plan/search/pricing.h"

namespace penstock::python {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// What a plan is for Python: its figures, and the schedule of the best.
struct Found {
  Json figures;
  Schedule schedule;
};

// The option --for has another name in Python, where `for` is no name.
template <class T>
T Planned(Result<T> result) {
  if (!result && result.error().parameter == "for") result.error().parameter = "framework";
  return ValueOf(std::move(result));
}

Found PlanModel(const PlanRequest& request) {
  PlanQuestion question = Planned(ModelQuestionOf(request));
  const TrainingRun run = Planned(TrainingRunOf(request));
  std::optional<OutlookQuestion> doubts = Planned(OutlookQuestionOf(request));
  const Clock::time_point begin = Clock::now();
  std::optional<PlanAnswer> answer;
  std::optional<Outlook> outlook;
  double seconds = 0;
  UntilSignal([&](const std::atomic<bool>& stop) {
    question.stop = [&] { return stop.load(); };
    answer = Planned(SearchPlans(question));
    seconds = SecondsSince(begin);
    if (!doubts) return;
    doubts->stop = question.stop;
    outlook = Planned(OutlookOf(*answer, *doubts));
  });
  Found found{FiguresOf(*answer, seconds, run), {}};
  if (doubts) found.figures["uncertainty"] = FiguresOf(outlook);
  found.schedule = Planned(BuildPlan(answer->best())).schedule;
  return found;
}

Found PlanCosts(const PlanRequest& request) {
  ScheduleQuestion question = Planned(ScheduleQuestionOf(request));
  const Clock::time_point begin = Clock::now();
  std::vector<Improvement> improvements;
  question.improved = [&](double length) { improvements.push_back({SecondsSince(begin), length}); };
  std::optional<SchedulePlan> plan;
  UntilSignal([&](const std::atomic<bool>& stop) {
    question.stop = [&] { return stop.load(); };
    plan = Planned(PlanSchedule(question));
  });
  return {FiguresOf(*plan, improvements, SecondsSince(begin)), plan->best().schedule};
}

// Adds the fields of a JSON object to the scenario of the request. Returns the figures as JSON, and
// the best schedule.
std::pair<std::string, FrozenSchedule> Plan(const std::string& fields, PlanRequest request) {
  const nb::gil_scoped_release release;
  const Status status = ReadFields(fields, {}, request.scenario);
  if (!status) ThrowWithoutLine(status.error());
  Found found = request.scenario.model ? PlanModel(request) : PlanCosts(request);
  return {found.figures.dump(-1, ' ', false, Json::error_handler_t::replace),
          {std::make_shared<const Schedule>(std::move(found.schedule)), true, false}};
}

}  // namespace

void AddPlans(nb::module_& module) {
  nb::class_<PlanRequest>(module, "PlanRequest")
      .def(nb::init<>())
      .def_rw("chunks", &PlanRequest::chunks)
      .def_rw("global_batch", &PlanRequest::global_batch)
      .def_rw("samples", &PlanRequest::samples)
      .def_rw("seed", &PlanRequest::seed)
      .def_rw("schedule", &PlanRequest::schedules)
      .def_rw("exclude", &PlanRequest::excluded)
      .def_rw("precisions", &PlanRequest::precisions)
      .def_rw("uncertainty", &PlanRequest::uncertainty)
      .def_rw("framework", &PlanRequest::framework)
      .def_rw("tokens", &PlanRequest::tokens)
      .def_rw("price_per_hour", &PlanRequest::price_per_hour)
      .def_rw("costs", &PlanRequest::costs);
  module.def("plan", &Plan, "fields"_a, "request"_a);
}

}  // namespace penstock::python
