// Fits constants of the machine to measured runs, by the least sum of |log(predicted / measured)|.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "base/result.h"
#include "calibrate/fit/constants.h"
#include "calibrate/price.h"

namespace penstock {

inline constexpr int kFolds = 5;

struct Fit {
  std::vector<ConstantValue> values;
  std::size_t rows = 0;
  double mape_before = 0;  // with the constants that the rows had
  double mape = 0;         // mean of |predicted / measured - 1| with the fitted ones
  // The mean error of held-out rows (five-fold cross-validation). Empty if there are too few rows.
  std::optional<double> cross_validated = {};
  // Whether it is better than none: on rows that it leaves out, if it has chosen its constants.
  bool is_kept = true;
  std::vector<MeasuredRun> runs = {};  // with the constants set if it is kept
};

// Fits these constants to the runs with a measured time. Requires: every run can be priced, and
// `predictions` belong to `runs`. Errors: kInvalidArgument if the rows do not determine the
// constants: too few rows, or predictions that a constant does not change or changes as others do.
Result<Fit> FitConstants(const PricedRuns& priced, const std::vector<FitConstant>& constants);

// Chooses among the constants that the rows determine to a quarter of their values: takes the one
// with the least cross-validated error, and adds others as long as it decreases by a fiftieth.
// The fit is not kept if rows that it leaves out are predicted worse than without a fit. `progress`
// gets the part of the work that is done.
Result<Fit> FitDeterminedConstants(
    const PricedRuns& priced, const std::vector<std::string_view>& per,
    const std::function<void(double)>& progress = [](double) {});

}  // namespace penstock
