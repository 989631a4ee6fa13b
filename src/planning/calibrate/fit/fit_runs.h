// Fits of the runs with a measured time.
#pragma once

#include <vector>

#include "base/result.h"
#include "calibrate/fit/fit.h"
#include "calibrate/fit/fit_problem.h"
#include "calibrate/price.h"

namespace penstock {

struct TimedRuns {
  std::vector<MeasuredRun> runs;
  std::vector<double> measured;
  std::vector<double> before;  // residuals of the constants that the runs have
};

// Returns at most `most` of the runs with a measured time, evenly chosen. Errors: kInvalidArgument
// if there is none.
Result<TimedRuns> Timed(const PricedRuns& priced, std::size_t most);

// Minimizes squares, and then absolute residuals in `rounds` rounds. `fit.runs` stays empty.
// Errors: as FitConstants.
Result<Fit> FitRuns(const TimedRuns& timed, const std::vector<FitConstant>& constants, int rounds);

// Returns the mean error of rows that are left out, as it is expected after one step from the
// values that the runs have: every time is taken for linear in the constants.
double LinearError(const FitProblem& problem);

// Sets the fitted constants in runs, also in those without a measured time.
void SetIn(std::vector<MeasuredRun>& runs, const Fit& fit);

}  // namespace penstock
