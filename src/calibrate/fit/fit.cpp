#include "calibrate/fit/fit.h"

#include <algorithm>
#include <cmath>

#include "calibrate/fit/fit_problem.h"
#include "calibrate/fit/least_squares.h"

namespace penstock {
namespace {

constexpr double kDependent = 1e-3;     // the part of a derivative that no other constant explains
constexpr double kWorthwhile = 0.02;    // the decrease of the error for which a constant is added
constexpr std::size_t kMostRows = 160;  // of a choice among constants
// Of a standard error relative to the value, or to the range of a value that may be 0: the most for
// which a choice among constants counts a constant as determined.
constexpr double kDetermined = 0.25;
constexpr int kReweighted = 2;  // rounds
// Of residuals, in standard deviations, that have their full weight: 95% as efficient as least
// squares if there are no outliers.
constexpr double kHuber = 1.345;

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

// Returns the square roots of the rows' weights by Huber (1964): those that a fit misses by far
// more than it misses most rows pull less. Their deviation is estimated by the median.
std::vector<double> RootWeights(std::vector<double> residuals) {
  std::vector<double> sizes = residuals;
  for (double& size : sizes) size = std::abs(size);
  const auto middle = sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() / 2);
  std::ranges::nth_element(sizes, middle);
  const double most = kHuber * 1.4826 * *middle;
  for (double& residual : residuals) {
    const double size = std::abs(residual);
    residual = most > 0 && size > most ? std::sqrt(most / size) : 1;
  }
  return residuals;
}

void Scale(const std::vector<double>& factors, std::vector<double>& residuals, Matrix* jacobian) {
  for (std::size_t row = 0; row < residuals.size(); ++row) {
    residuals[row] *= factors[row];
    if (jacobian == nullptr) continue;
    for (std::size_t column = 0; column < jacobian->columns; ++column) {
      (*jacobian)(row, column) *= factors[row];
    }
  }
}

// A fit with the rows' weights: its residuals and its Jacobian are multiplied by `roots`.
struct WeightedFit {
  LeastSquaresFit fit;
  std::vector<double> roots;

  std::vector<double> Residuals() const {
    std::vector<double> residuals = fit.residuals;
    for (std::size_t row = 0; row < residuals.size(); ++row) residuals[row] /= roots[row];
    return residuals;
  }
};

WeightedFit MinimizeWeighted(const FitProblem& problem) {
  const LeastSquares plain = problem.Problem();
  WeightedFit weighted{Minimize(plain, problem.Start()), {}};
  weighted.roots.assign(weighted.fit.residuals.size(), 1);
  for (int round = 0; round < kReweighted; ++round) {
    weighted.roots = RootWeights(weighted.Residuals());
    LeastSquares reweighted = plain;
    reweighted.residuals = [&](const std::vector<double>& at, Matrix* jacobian) {
      std::vector<double> residuals = plain.residuals(at, jacobian);
      Scale(weighted.roots, residuals, jacobian);
      return residuals;
    };
    weighted.fit = Minimize(reweighted, weighted.fit.at);
  }
  return weighted;
}

// Standard errors from the Jacobian: those of a linear fit with residuals of one variance.
std::vector<ConstantValue> ValuesOf(const FitProblem& problem, const LeastSquaresFit& fit,
                                    const std::vector<FitConstant>& constants,
                                    const std::vector<MeasuredRun>& runs) {
  const std::vector<bool> held = AtBounds(problem.Problem(), fit.at);
  const auto free = static_cast<double>(std::ranges::count(held, false));
  const auto rows = static_cast<double>(fit.residuals.size());
  const double variance = fit.sum / std::max(1.0, rows - free);
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
    value.error = std::sqrt(variance * diagonal[i]) * SlopeOf(field, fit.at[i]);
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

Result<Fit> FitRuns(const TimedRuns& timed, const std::vector<FitConstant>& constants) {
  const FitProblem problem(timed.runs, timed.measured, constants);
  PENSTOCK_TRY_STATUS(CheckRows(problem, timed.runs.size()));
  const WeightedFit found = MinimizeWeighted(problem);
  PENSTOCK_TRY_STATUS(CheckRank(problem, found.fit));
  Fit fit;
  fit.values = ValuesOf(problem, found.fit, constants, timed.runs);
  fit.rows = timed.runs.size();
  fit.mape_before = MapeOf(timed.before);
  fit.mape = MapeOf(found.Residuals());
  fit.cross_validated = CrossValidated(problem, found.fit);
  return fit;
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
      const auto fit = FitRuns(timed, with);
      if (!fit || !fit->cross_validated || !AreDetermined(*fit)) continue;
      if (!best || *fit->cross_validated < best->error) best = {with.back(), *fit->cross_validated};
    }
  }
  return best;
}

}  // namespace

Result<Fit> FitConstants(const PricedRuns& priced, const std::vector<FitConstant>& constants) {
  PENSTOCK_TRY(Fit fit, FitRuns(Timed(priced, priced.runs.size()), constants));
  SetInRuns(priced, fit);
  return fit;
}

Result<Fit> FitDeterminedConstants(const PricedRuns& priced,
                                   const std::vector<std::string_view>& per) {
  const TimedRuns some = Timed(priced, kMostRows);
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
