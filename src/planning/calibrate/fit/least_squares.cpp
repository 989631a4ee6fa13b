#include "calibrate/fit/least_squares.h"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

constexpr int kMostSteps = 40;
constexpr double kLittle = 1e-5;  // a relative decrease of the sum that ends the search
constexpr double kMostDamping = 1e8;
constexpr double kSingular = 1e-12;  // a pivot relative to its diagonal

double SumOfSquares(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return sum;
}

std::vector<double> Clamped(const LeastSquares& problem, std::vector<double> at) {
  for (std::size_t i = 0; i < at.size(); ++i) {
    at[i] = std::clamp(at[i], problem.least[i], problem.most[i]);
  }
  return at;
}

// Parameters at a bound beyond which the sum would decrease.
std::vector<bool> HeldByBounds(const LeastSquares& problem, const LeastSquaresFit& fit) {
  std::vector<bool> held(fit.at.size());
  for (std::size_t column = 0; column < held.size(); ++column) {
    double gradient = 0;
    for (std::size_t row = 0; row < fit.residuals.size(); ++row) {
      gradient += fit.jacobian(row, column) * fit.residuals[row];
    }
    held[column] = (fit.at[column] <= problem.least[column] && gradient > 0) ||
                   (fit.at[column] >= problem.most[column] && gradient < 0);
  }
  return held;
}

// The lower triangle of a^T a, factored (Cholesky). Columns that are fixed or depend on earlier
// ones are left out: their diagonal is 0.
class NormalEquations {
 public:
  NormalEquations(const Matrix& a, const std::vector<bool>& fixed, double damping,
                  const std::vector<bool>& rows)
      : size_(a.columns), lower_{a.columns, a.columns} {
    for (std::size_t row = 0; row < a.rows; ++row) {
      if (!rows.empty() && !rows[row]) continue;
      for (std::size_t i = 0; i < size_; ++i) {
        if (fixed[i] || a(row, i) == 0) continue;
        for (std::size_t j = 0; j <= i; ++j) {
          if (!fixed[j]) lower_(i, j) += a(row, i) * a(row, j);
        }
      }
    }
    for (std::size_t i = 0; i < size_; ++i) lower_(i, i) *= 1 + damping;
    Factor();
  }

  std::vector<double> Solve(std::vector<double> b) const {
    for (std::size_t i = 0; i < size_; ++i) {
      for (std::size_t j = 0; j < i; ++j) b[i] -= lower_(i, j) * b[j];
      b[i] = lower_(i, i) > 0 ? b[i] / lower_(i, i) : 0;
    }
    for (std::size_t i = size_; i-- > 0;) {
      for (std::size_t j = i + 1; j < size_; ++j) b[i] -= lower_(j, i) * b[j];
      b[i] = lower_(i, i) > 0 ? b[i] / lower_(i, i) : 0;
    }
    return b;
  }

 private:
  void Factor() {
    for (std::size_t i = 0; i < size_; ++i) {
      const double diagonal = lower_(i, i);
      for (std::size_t j = 0; j < i; ++j) {
        double value = lower_(i, j);
        for (std::size_t k = 0; k < j; ++k) value -= lower_(i, k) * lower_(j, k);
        lower_(i, j) = lower_(j, j) > 0 ? value / lower_(j, j) : 0;
        lower_(i, i) -= lower_(i, j) * lower_(i, j);
      }
      lower_(i, i) = lower_(i, i) > kSingular * diagonal ? std::sqrt(lower_(i, i)) : 0;
    }
  }

  std::size_t size_;
  Matrix lower_;
};

}  // namespace

std::vector<double> SolveLinear(const Matrix& a, const std::vector<double>& b,
                                const std::vector<bool>& fixed, double damping,
                                const std::vector<bool>& rows) {
  std::vector<double> right(a.columns);
  for (std::size_t row = 0; row < a.rows; ++row) {
    if (!rows.empty() && !rows[row]) continue;
    for (std::size_t column = 0; column < a.columns; ++column) {
      if (!fixed[column]) right[column] -= a(row, column) * b[row];
    }
  }
  return NormalEquations(a, fixed, damping, rows).Solve(std::move(right));
}

LeastSquaresFit Minimize(const LeastSquares& problem, std::vector<double> start) {
  const auto evaluate = [&](std::vector<double> at) {
    LeastSquaresFit fit;
    fit.at = std::move(at);
    fit.residuals = problem.residuals(fit.at, &fit.jacobian);
    fit.sum = SumOfSquares(fit.residuals);
    return fit;
  };
  LeastSquaresFit fit = evaluate(std::move(start));
  double damping = 1e-3;
  for (int step = 0; step < kMostSteps && damping < kMostDamping; ++step) {
    const std::vector<bool> held = HeldByBounds(problem, fit);
    std::vector<double> next = fit.at;
    const std::vector<double> change = SolveLinear(fit.jacobian, fit.residuals, held, damping);
    for (std::size_t i = 0; i < next.size(); ++i) next[i] += change[i];
    next = Clamped(problem, std::move(next));
    const double sum = SumOfSquares(problem.residuals(next, nullptr));
    if (!(sum < fit.sum)) {
      if (fit.sum - sum > -kLittle * fit.sum) break;
      damping *= 8;
      continue;
    }
    const bool ends = fit.sum - sum < kLittle * fit.sum;
    fit = evaluate(std::move(next));
    damping = std::max(damping / 8, 1e-9);
    if (ends) break;
  }
  return fit;
}

std::optional<std::size_t> DependentColumn(const Matrix& a, double precision) {
  // Gram-Schmidt, twice for precision.
  std::vector<std::vector<double>> basis;
  for (std::size_t column = 0; column < a.columns; ++column) {
    std::vector<double> rest(a.rows);
    for (std::size_t row = 0; row < a.rows; ++row) rest[row] = a(row, column);
    const double before = std::sqrt(SumOfSquares(rest));
    for (int round = 0; round < 2; ++round) {
      for (const std::vector<double>& direction : basis) {
        double along = 0;
        for (std::size_t row = 0; row < a.rows; ++row) along += direction[row] * rest[row];
        for (std::size_t row = 0; row < a.rows; ++row) rest[row] -= along * direction[row];
      }
    }
    const double after = std::sqrt(SumOfSquares(rest));
    if (!(after > precision * before)) return column;
    for (double& value : rest) value /= after;
    basis.push_back(std::move(rest));
  }
  return std::nullopt;
}

std::vector<double> InverseDiagonal(const Matrix& a, const std::vector<bool>& fixed) {
  const NormalEquations equations(a, fixed, 0, {});
  std::vector<double> diagonal(a.columns);
  for (std::size_t column = 0; column < a.columns; ++column) {
    if (fixed[column]) continue;
    std::vector<double> unit(a.columns);
    unit[column] = 1;
    diagonal[column] = equations.Solve(std::move(unit))[column];
  }
  return diagonal;
}

}  // namespace penstock
