#include "calibrate/fit/fit.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/system/on_all_cores.h"
#include "calibrate/fit/least_squares.h"

namespace penstock {
namespace {

// Runs with the constants that they share, as a problem of least squares.
class FitProblem {
 public:
  // Ownership: refers to all arguments.
  FitProblem(const std::vector<MeasuredRun>& runs, const std::vector<double>& measured,
             const std::vector<FitConstant>& constants);

  // One value of a constant that some runs share.
  struct Parameter {
    std::size_t constant = 0;
    std::string group;
    std::size_t first_run = 0;  // whose columns tell the group
    std::size_t rows = 0;
  };

  const std::vector<Parameter>& parameters() const { return parameters_; }
  const ScenarioField& FieldOf(std::size_t parameter) const;
  // The values that the runs have, where searches start.
  std::vector<double> Start() const;
  LeastSquares Problem() const;
  // The residuals of the runs for which `wanted` is true, 0 for the others.
  std::vector<double> Residuals(const std::vector<double>& at,
                                const std::vector<bool>& wanted) const;
  MeasuredRun RunWith(std::size_t run, const std::vector<double>& at) const;
  // Returns "flops_efficiency (device a100, precision fp16)".
  std::string NameOf(std::size_t parameter) const;

 private:
  double Residual(std::size_t run, const std::vector<double>& at) const;
  std::vector<double> Evaluate(const std::vector<double>& at, Matrix* jacobian) const;

  const std::vector<MeasuredRun>& runs_;
  const std::vector<double>& measured_;
  const std::vector<FitConstant>& constants_;
  std::vector<Parameter> parameters_;
  std::vector<std::vector<std::size_t>> of_run_;  // by run and constant: the parameter
};

constexpr double kDifference = 1e-3;  // of a derivative, in a search's unit

constexpr double kRefused = 10;  // the residual of a run that constants make impossible

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
  std::vector<double> residuals(runs_.size());
  if (jacobian != nullptr) *jacobian = {runs_.size(), parameters_.size()};
  OnAllCores(runs_.size(), [&](std::size_t run) {
    residuals[run] = Residual(run, at);
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
  return residuals;
}

std::string FitProblem::NameOf(std::size_t parameter) const {
  const Parameter& each = parameters_[parameter];
  const std::string name(FieldOf(parameter).name);
  return each.group.empty() ? name : fmt::format("{} ({})", name, each.group);
}

constexpr double kDependent = 1e-3;     // the part of a derivative that no other constant explains
constexpr double kWorthwhile = 0.02;    // the decrease of the error for which a constant is added
constexpr std::size_t kMostRows = 160;  // of a choice among constants
// A choice among constants counts one as determined if its standard error is at most this part of
// its value, or of its range if it may be 0.
constexpr double kDetermined = 0.25;
constexpr int kMostRounds = 8;
constexpr double kLittleGain = 1e-3;     // a relative decrease of the sum that ends the rounds
constexpr double kSmallResidual = 1e-3;  // up to which residuals have equal weights

double MapeOf(const std::vector<double>& residuals) {
  double sum = 0;
  for (const double residual : residuals) sum += std::abs(std::exp(residual) - 1);
  return residuals.empty() ? 0 : sum / static_cast<double>(residuals.size());
}

std::vector<bool> AtBounds(const LeastSquares& problem, const std::vector<double>& at) {
  std::vector<bool> bounds(at.size());
  for (std::size_t i = 0; i < at.size(); ++i) {
    bounds[i] = at[i] <= problem.least[i] || at[i] >= problem.most[i];
  }
  return bounds;
}

Status CheckRows(const FitProblem& problem, std::size_t rows) {
  const std::size_t constants = problem.parameters().size();
  if (rows > constants) return {};
  return InvalidArgument(
      "{} rows with a time do not determine {} constants ({}, ...): give more rows, fewer "
      "constants, or fewer columns to fit them by",
      rows, constants, problem.NameOf(0));
}

Status CheckRank(const FitProblem& problem, const LeastSquaresFit& fit) {
  const auto dependent = DependentColumn(fit.jacobian, kDependent);
  if (!dependent) return {};
  bool has_effect = false;
  for (std::size_t row = 0; row < fit.jacobian.rows; ++row) {
    has_effect = has_effect || std::abs(fit.jacobian(row, *dependent)) > 1e-9;
  }
  return InvalidArgument("the rows do not determine {}: {}; leave it out",
                         problem.NameOf(*dependent),
                         has_effect ? "it changes their times as the other constants do"
                                    : "it changes none of their times");
}

// Returns the parameters that rows outside of a fold determine: one step of Gauss and Newton from
// the fit to all rows. What no row outside determines has the mean of the constant's other values.
std::vector<double> WithoutFold(const FitProblem& problem, const LeastSquares& bounds,
                                const LeastSquaresFit& fit, const std::vector<bool>& outside) {
  const std::vector<bool> free(fit.at.size());
  const std::vector<double> change = SolveLinear(fit.jacobian, fit.residuals, free, 0, outside);
  std::vector<double> at = fit.at;
  std::vector<bool> known(at.size());
  for (std::size_t i = 0; i < at.size(); ++i) {
    for (std::size_t row = 0; row < outside.size(); ++row) {
      known[i] = known[i] || (outside[row] && fit.jacobian(row, i) != 0);
    }
    at[i] = std::clamp(at[i] + change[i], bounds.least[i], bounds.most[i]);
  }
  for (std::size_t i = 0; i < at.size(); ++i) {
    if (known[i]) continue;
    const ScenarioField& field = problem.FieldOf(i);
    double sum = 0, count = 0;
    for (std::size_t j = 0; j < at.size(); ++j) {
      if (!known[j] || &problem.FieldOf(j) != &field) continue;
      sum += at[j];
      ++count;
    }
    at[i] = count > 0 ? sum / count : ToSearch(field, field.fit->usual);
  }
  return at;
}

std::optional<double> CrossValidated(const FitProblem& problem, const LeastSquaresFit& fit) {
  const std::size_t rows = fit.residuals.size();
  if (rows < kFolds) return std::nullopt;
  const LeastSquares bounds = problem.Problem();
  std::vector<double> left_out(rows);
  for (std::size_t fold = 0; fold < kFolds; ++fold) {
    std::vector<bool> outside(rows), inside(rows);
    for (std::size_t row = 0; row < rows; ++row) {
      inside[row] = row % kFolds == fold;
      outside[row] = !inside[row];
    }
    const std::vector<double> residuals =
        problem.Residuals(WithoutFold(problem, bounds, fit, outside), inside);
    for (std::size_t row = 0; row < rows; ++row) {
      if (inside[row]) left_out[row] = residuals[row];
    }
  }
  return MapeOf(left_out);
}

double SumOfSizes(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += std::abs(value);
  return sum;
}

// A fit with weights of its rows: its residuals and its Jacobian are multiplied by their roots.
struct WeightedFit {
  LeastSquaresFit fit;
  std::vector<double> roots;

  std::vector<double> Residuals() const {
    std::vector<double> residuals = fit.residuals;
    for (std::size_t row = 0; row < residuals.size(); ++row) residuals[row] /= roots[row];
    return residuals;
  }
};

LeastSquaresFit MinimizeWeighted(const LeastSquares& problem, const std::vector<double>& roots,
                                 std::vector<double> start) {
  LeastSquares weighted = problem;
  weighted.residuals = [&](const std::vector<double>& at, Matrix* jacobian) {
    std::vector<double> residuals = problem.residuals(at, jacobian);
    for (std::size_t row = 0; row < residuals.size(); ++row) {
      residuals[row] *= roots[row];
      if (jacobian == nullptr) continue;
      for (std::size_t column = 0; column < jacobian->columns; ++column) {
        (*jacobian)(row, column) *= roots[row];
      }
    }
    return residuals;
  };
  return Minimize(weighted, std::move(start));
}

// Minimizes the sum of absolute residuals by up to `rounds` rounds of reweighted least squares
// (Schlossmacher 1973): the mean error is such a sum, and outliers count less in it.
WeightedFit MinimizeAbsolute(const FitProblem& problem, int rounds) {
  const LeastSquares plain = problem.Problem();
  WeightedFit best{Minimize(plain, problem.Start()), {}};
  best.roots.assign(best.fit.residuals.size(), 1);
  for (int round = 0; round < rounds; ++round) {
    WeightedFit next{{}, best.Residuals()};
    const double sum = SumOfSizes(next.roots);
    for (double& root : next.roots) root = 1 / std::sqrt(std::max(std::abs(root), kSmallResidual));
    next.fit = MinimizeWeighted(plain, next.roots, best.fit.at);
    const double next_sum = SumOfSizes(next.Residuals());
    if (!(next_sum < sum)) break;
    best = std::move(next);
    if (next_sum > sum * (1 - kLittleGain)) break;
  }
  return best;
}

// Standard errors from the Jacobian, as in a linear fit by least absolute residuals that have a
// Laplace distribution.
std::vector<ConstantValue> ValuesOf(const FitProblem& problem, const WeightedFit& weighted,
                                    const std::vector<FitConstant>& constants,
                                    const std::vector<MeasuredRun>& runs) {
  LeastSquaresFit fit = weighted.fit;
  for (std::size_t row = 0; row < fit.residuals.size(); ++row) {
    for (std::size_t column = 0; column < fit.jacobian.columns; ++column) {
      fit.jacobian(row, column) /= weighted.roots[row];
    }
  }
  const std::vector<bool> held = AtBounds(problem.Problem(), fit.at);
  const auto free = static_cast<double>(std::ranges::count(held, false));
  const auto rows = static_cast<double>(fit.residuals.size());
  const double deviation = SumOfSizes(weighted.Residuals()) / std::max(1.0, rows - free);
  const std::vector<double> diagonal = InverseDiagonal(fit.jacobian, held);
  std::vector<ConstantValue> values;
  for (std::size_t i = 0; i < fit.at.size(); ++i) {
    const FitProblem::Parameter& parameter = problem.parameters()[i];
    const ScenarioField& field = problem.FieldOf(i);
    ConstantValue value{.field = &field, .value = FromSearch(field, fit.at[i])};
    for (const std::string_view column : constants[parameter.constant].per) {
      std::string text = ValueOf(runs[parameter.first_run], column);
      if (!text.empty()) value.of.emplace_back(column, std::move(text));
    }
    value.error = deviation * std::sqrt(diagonal[i]) * SlopeOf(field, fit.at[i]);
    value.at_bound = held[i];
    value.rows = parameter.rows;
    values.push_back(std::move(value));
  }
  return values;
}

struct TimedRuns {
  std::vector<MeasuredRun> runs;
  std::vector<double> measured;
  std::vector<double> before;  // residuals of the constants that the runs have
};

// The runs with a measured time, at most `most` of them, evenly chosen.
TimedRuns Timed(const PricedRuns& priced, std::size_t most) {
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < priced.runs.size(); ++i) {
    if (priced.predictions[i].measured_step_time) all.push_back(i);
  }
  TimedRuns timed;
  const std::size_t count = std::min(most, all.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t run = all[i * all.size() / count];
    timed.runs.push_back(priced.runs[run]);
    const Prediction& prediction = priced.predictions[run];
    timed.measured.push_back(*prediction.measured_step_time);
    timed.before.push_back(std::log(prediction.step_time / timed.measured.back()));
  }
  return timed;
}

Result<Fit> FitRuns(const TimedRuns& timed, const std::vector<FitConstant>& constants, int rounds) {
  const FitProblem problem(timed.runs, timed.measured, constants);
  PENSTOCK_TRY_STATUS(CheckRows(problem, timed.runs.size()));
  const WeightedFit found = MinimizeAbsolute(problem, rounds);
  PENSTOCK_TRY_STATUS(CheckRank(problem, found.fit));
  Fit fit;
  fit.values = ValuesOf(problem, found, constants, timed.runs);
  fit.rows = timed.runs.size();
  fit.mape_before = MapeOf(timed.before);
  fit.mape = MapeOf(found.Residuals());
  fit.cross_validated = CrossValidated(problem, found.fit);
  return fit;
}

Status RequireTimes(const TimedRuns& timed) {
  if (!timed.runs.empty()) return {};
  return InvalidArgument(
      "no row has a measured time, which a fit needs: give step_time or "
      "tokens_per_second_per_device");
}

// Sets the fitted constants in all runs, also in those without a measured time.
void SetInRuns(const PricedRuns& priced, Fit& fit) {
  fit.runs = priced.runs;
  for (MeasuredRun& run : fit.runs) {
    for (const ConstantValue& value : fit.values) {
      const bool applies = std::ranges::all_of(value.of, [&](const auto& column) {
        return ValueOf(run, column.first) == column.second;
      });
      if (applies) SetConstant(*value.field, value.value, run.scenario);
    }
  }
}

// Whether the rows determine all values: none is at its bound or too uncertain.
bool AreDetermined(const Fit& fit) {
  return std::ranges::all_of(fit.values, [](const ConstantValue& value) {
    const ScenarioField& field = *value.field;
    const double slope = SlopeOf(field, ToSearch(field, value.value));
    return !value.at_bound && value.error <= kDetermined * slope;
  });
}

struct Addition {
  FitConstant constant;
  double error = 0;  // of rows that are left out
};

// Returns the constant that decreases the error of rows that a fit leaves out most, if it is added.
std::optional<Addition> BestAddition(const TimedRuns& timed, const std::vector<FitConstant>& chosen,
                                     const std::vector<std::string_view>& per) {
  std::optional<Addition> best;
  for (const ScenarioField* field : MachineFields()) {
    const bool has =
        std::ranges::any_of(chosen, [&](const FitConstant& each) { return each.field == field; });
    if (has) continue;
    for (const std::vector<std::string_view>& columns :
         per.empty() ? UsualColumns(*field) : std::vector<std::vector<std::string_view>>{per}) {
      std::vector<FitConstant> with = chosen;
      with.push_back({field, columns});
      const auto fit = FitRuns(timed, with, 0);
      if (!fit || !fit->cross_validated || !AreDetermined(*fit)) continue;
      if (!best || *fit->cross_validated < best->error) best = {with.back(), *fit->cross_validated};
    }
  }
  return best;
}

}  // namespace

Result<Fit> FitConstants(const PricedRuns& priced, const std::vector<FitConstant>& constants) {
  const TimedRuns timed = Timed(priced, priced.runs.size());
  PENSTOCK_TRY_STATUS(RequireTimes(timed));
  PENSTOCK_TRY(Fit fit, FitRuns(timed, constants, kMostRounds));
  SetInRuns(priced, fit);
  return fit;
}

Result<Fit> FitDeterminedConstants(const PricedRuns& priced,
                                   const std::vector<std::string_view>& per) {
  const TimedRuns some = Timed(priced, kMostRows);
  PENSTOCK_TRY_STATUS(RequireTimes(some));
  std::vector<FitConstant> chosen;
  double least_error = 0;
  while (true) {
    const std::optional<Addition> best = BestAddition(some, chosen, per);
    if (!best) break;
    const bool is_first = chosen.empty();
    if (!is_first && best->error > least_error * (1 - kWorthwhile)) break;
    least_error = best->error;
    chosen.push_back(best->constant);
  }
  if (chosen.empty()) {
    return InvalidArgument(
        "the rows determine no constant to a quarter of its value: give more rows, or name what "
        "to fit");
  }
  return FitConstants(priced, chosen);
}

}  // namespace penstock
