#include "calibrate/fit/fit.h"

#include <algorithm>
#include <cmath>

#include "calibrate/fit/fit_problem.h"
#include "calibrate/fit/fit_runs.h"
#include "calibrate/fit/least_squares.h"

namespace penstock {
namespace {

constexpr double kDependent = 1e-3;  // the part of a derivative that no other constant explains
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

}  // namespace

Result<TimedRuns> Timed(const PricedRuns& priced, std::size_t most) {
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < priced.runs.size(); ++i) {
    if (priced.predictions[i].measured_step_time) all.push_back(i);
  }
  if (all.empty()) {
    return InvalidArgument(
        "no row has a measured time, which a fit needs: give step_time or "
        "tokens_per_second_per_device");
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

double LinearError(const FitProblem& problem) {
  const LeastSquares squares = problem.Problem();
  const std::vector<double> start = problem.Start();
  Matrix jacobian;
  const std::vector<double> residuals = squares.residuals(start, &jacobian);
  std::vector<double> left_out = residuals;
  for (std::size_t fold = 0; fold < kFolds; ++fold) {
    std::vector<bool> outside(residuals.size());
    for (std::size_t row = 0; row < outside.size(); ++row) outside[row] = row % kFolds != fold;
    const std::vector<double> change =
        SolveLinear(jacobian, residuals, std::vector<bool>(start.size()), 0, outside);
    for (std::size_t row = fold; row < residuals.size(); row += kFolds) {
      for (std::size_t i = 0; i < start.size(); ++i) {
        const double at = std::clamp(start[i] + change[i], squares.least[i], squares.most[i]);
        left_out[row] += jacobian(row, i) * (at - start[i]);
      }
    }
  }
  return MapeOf(left_out);
}

void SetIn(std::vector<MeasuredRun>& runs, const Fit& fit) {
  for (MeasuredRun& run : runs) {
    for (const ConstantValue& value : fit.values) {
      const bool applies = std::ranges::all_of(value.of, [&](const auto& column) {
        return ValueOf(run, column.first) == column.second;
      });
      if (applies) SetConstant(*value.field, value.value, run.scenario);
    }
  }
}

Result<Fit> FitConstants(const PricedRuns& priced, const std::vector<FitConstant>& constants) {
  PENSTOCK_TRY(const TimedRuns timed, Timed(priced, priced.runs.size()));
  PENSTOCK_TRY(Fit fit, FitRuns(timed, constants, kMostRounds));
  fit.runs = priced.runs;
  SetIn(fit.runs, fit);
  return fit;
}

}  // namespace penstock
