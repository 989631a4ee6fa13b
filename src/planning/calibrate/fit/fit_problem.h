// Runs with the constants that they share, as a problem of least squares.
#pragma once

#include <string>
#include <vector>

#include "calibrate/fit/constants.h"
#include "calibrate/fit/least_squares.h"
#include "calibrate/measured_run.h"

namespace penstock {

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
  // The last evaluations without and with derivatives, which searches ask for again. So one thread
  // at a time may evaluate a problem.
  mutable LeastSquaresFit last_, linear_;
};

}  // namespace penstock
