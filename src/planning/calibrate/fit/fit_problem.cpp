#include "calibrate/fit/fit_problem.h"

#include <cmath>
#include <map>

#include "base/system/on_all_cores.h"
#include "scenario/estimate/estimate_step.h"

namespace penstock {
namespace {

constexpr double kDifference = 1e-3;  // of a derivative, in a search's unit

constexpr double kRefused = 10;  // the residual of a run that constants make impossible

}  // namespace

FitProblem::FitProblem(const std::vector<MeasuredRun>& runs, const std::vector<double>& measured,
                       const std::vector<FitConstant>& constants)
    : runs_(runs), measured_(measured), constants_(constants) {
  std::map<std::pair<std::size_t, std::string>, std::size_t> index;
  of_run_.resize(runs.size());
  for (std::size_t constant = 0; constant < constants.size(); ++constant) {
    for (std::size_t run = 0; run < runs.size(); ++run) {
      std::string group = Describe(runs[run], constants[constant].per);
      const auto [place, added] = index.emplace(std::pair(constant, group), parameters_.size());
      if (added) parameters_.push_back({constant, std::move(group), run});
      ++parameters_[place->second].rows;
      of_run_[run].push_back(place->second);
    }
  }
}

const ScenarioField& FitProblem::FieldOf(std::size_t parameter) const {
  return *constants_[parameters_[parameter].constant].field;
}

std::vector<double> FitProblem::Start() const {
  std::vector<double> start;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const ScenarioField& field = FieldOf(i);
    start.push_back(ToSearch(field, ConstantOf(field, runs_[parameters_[i].first_run].scenario)));
  }
  return start;
}

LeastSquares FitProblem::Problem() const {
  LeastSquares problem;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const ScenarioField& field = FieldOf(i);
    problem.least.push_back(ToSearch(field, field.fit->least));
    problem.most.push_back(ToSearch(field, field.fit->most));
  }
  problem.residuals = [this](const std::vector<double>& at, Matrix* jacobian) {
    return Evaluate(at, jacobian);
  };
  return problem;
}

MeasuredRun FitProblem::RunWith(std::size_t run, const std::vector<double>& at) const {
  MeasuredRun with = runs_[run];
  for (const std::size_t parameter : of_run_[run]) {
    const ScenarioField& field = FieldOf(parameter);
    SetConstant(field, FromSearch(field, at[parameter]), with.scenario);
  }
  return with;
}

double FitProblem::Residual(std::size_t run, const std::vector<double>& at) const {
  const auto estimate = EstimateStep(RunWith(run, at).scenario);
  return estimate ? std::log(estimate->step_time / measured_[run]) : kRefused;
}

std::vector<double> FitProblem::Residuals(const std::vector<double>& at,
                                          const std::vector<bool>& wanted) const {
  std::vector<double> residuals(runs_.size());
  OnAllCores(runs_.size(), [&](std::size_t run) {
    if (wanted[run]) residuals[run] = Residual(run, at);
  });
  return residuals;
}

std::vector<double> FitProblem::Evaluate(const std::vector<double>& at, Matrix* jacobian) const {
  if (jacobian != nullptr && at == linear_.at && !at.empty()) {
    *jacobian = linear_.jacobian;
    return linear_.residuals;
  }
  const bool is_known = at == last_.at && !at.empty();
  std::vector<double> residuals = is_known ? last_.residuals : std::vector<double>(runs_.size());
  if (jacobian != nullptr) *jacobian = {runs_.size(), parameters_.size()};
  OnAllCores(runs_.size(), [&](std::size_t run) {
    if (!is_known) residuals[run] = Residual(run, at);
    if (jacobian == nullptr) return;
    std::vector<double> moved = at;
    for (const std::size_t parameter : of_run_[run]) {
      const ScenarioField& field = FieldOf(parameter);
      // Away from the upper bound.
      const bool up = at[parameter] + kDifference <= ToSearch(field, field.fit->most);
      moved[parameter] = at[parameter] + (up ? kDifference : -kDifference);
      (*jacobian)(run, parameter) =
          (Residual(run, moved) - residuals[run]) / (moved[parameter] - at[parameter]);
      moved[parameter] = at[parameter];
    }
  });
  last_.at = at;
  last_.residuals = residuals;
  if (jacobian == nullptr) return residuals;
  linear_ = last_;
  linear_.jacobian = *jacobian;
  return residuals;
}

std::string FitProblem::NameOf(std::size_t parameter) const {
  const Parameter& each = parameters_[parameter];
  const std::string name(FieldOf(parameter).name);
  return each.group.empty() ? name : fmt::format("{} ({})", name, each.group);
}

}  // namespace penstock
