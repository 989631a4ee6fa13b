// Nonlinear least squares with bounds: Levenberg (1944) and Marquardt (1963), with a step that is
// projected into the bounds.
#pragma once

#include <functional>
#include <optional>
#include <vector>

namespace penstock {

// A dense matrix by rows.
struct Matrix {
  std::size_t rows = 0, columns = 0;
  std::vector<double> values = std::vector<double>(rows * columns);

  double& operator()(std::size_t row, std::size_t column) { return values[row * columns + column]; }
  double operator()(std::size_t row, std::size_t column) const {
    return values[row * columns + column];
  }
};

struct LeastSquares {
  std::vector<double> least, most;  // bounds of the parameters
  // Returns the residuals, and their derivatives if `jacobian` is not null. The latter has the size
  // of the problem and is zero.
  std::function<std::vector<double>(const std::vector<double>& at, Matrix* jacobian)> residuals;
};

struct LeastSquaresFit {
  std::vector<double> at;
  std::vector<double> residuals;
  Matrix jacobian;  // there
  double sum = 0;   // of squared residuals
};

// Returns a local minimum from `start`, which must be within the bounds.
LeastSquaresFit Minimize(const LeastSquares& problem, std::vector<double> start);

// Returns x that minimizes |a x + b|^2 + damping * |diag(a) x|^2 over the rows for which
// `rows` is true (all if it is empty) and the columns that are not fixed; fixed ones are 0. A
// column that depends on others is 0, too.
std::vector<double> SolveLinear(const Matrix& a, const std::vector<double>& b,
                                const std::vector<bool>& fixed, double damping = 0,
                                const std::vector<bool>& rows = {});

// Returns the first column that is a combination of those before it, to `precision` of its size;
// the column itself if it is zero.
std::optional<std::size_t> DependentColumn(const Matrix& a, double precision);

// Returns the diagonal of the inverse of a^T a without the fixed columns; 0 for these.
std::vector<double> InverseDiagonal(const Matrix& a, const std::vector<bool>& fixed);

}  // namespace penstock
