#include "calibrate/fit/least_squares.h"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock {
namespace {

// Residuals of y = a * exp(b * x) at points of a = 2, b = -0.5.
LeastSquares Decay() {
  LeastSquares problem;
  problem.least = {0.1, -3};
  problem.most = {10, 3};
  problem.residuals = [](const std::vector<double>& at, Matrix* jacobian) {
    std::vector<double> residuals;
    if (jacobian != nullptr) *jacobian = {5, 2};
    for (int i = 0; i < 5; ++i) {
      const double value = std::exp(at[1] * i);
      residuals.push_back(at[0] * value - 2 * std::exp(-0.5 * i));
      if (jacobian == nullptr) continue;
      (*jacobian)(static_cast<std::size_t>(i), 0) = value;
      (*jacobian)(static_cast<std::size_t>(i), 1) = at[0] * i * value;
    }
    return residuals;
  };
  return problem;
}

TEST(LeastSquares, FindsTheMinimum) {
  const LeastSquaresFit fit = Minimize(Decay(), {5, 0.5});
  EXPECT_NEAR(fit.at[0], 2, 1e-4);
  EXPECT_NEAR(fit.at[1], -0.5, 1e-4);
  EXPECT_LT(fit.sum, 1e-8);
}

TEST(LeastSquares, StaysWithinBounds) {
  LeastSquares problem = Decay();
  problem.least = {2.5, -3};
  const LeastSquaresFit fit = Minimize(problem, {5, 0.5});
  EXPECT_DOUBLE_EQ(fit.at[0], 2.5);
  EXPECT_LT(fit.at[1], -0.5);  // the other parameter makes up for it
}

TEST(LeastSquares, FindsDependentColumns) {
  Matrix a{3, 3};
  a.values = {1, 2, 0, 3, 6, 1, 0, 0, 4};
  EXPECT_EQ(DependentColumn(a, 1e-3), std::size_t{1});
  a.values = {1, 2, 0, 3, 5, 1, 0, 0, 4};
  EXPECT_EQ(DependentColumn(a, 1e-3), std::nullopt);
  a.values = {1, 2, 0, 3, 5, 0, 0, 0, 0};
  EXPECT_EQ(DependentColumn(a, 1e-3), std::size_t{2});
}

TEST(LeastSquares, InverseDiagonalIsThatOfTheNormalEquations) {
  Matrix a{2, 2};
  a.values = {2, 0, 0, 4};
  EXPECT_EQ(InverseDiagonal(a, {false, false}), (std::vector<double>{1. / 4, 1. / 16}));
  EXPECT_EQ(InverseDiagonal(a, {true, false}), (std::vector<double>{0, 1. / 16}));
}

}  // namespace
}  // namespace penstock
