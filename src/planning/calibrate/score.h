// How well predictions fit what was measured.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace penstock {

// One priced row.
struct Prediction {
  int row = 0;
  std::string group;          // rows that a user chooses among
  double device_seconds = 0;  // per token, by which rows of a group compare: of the prediction
  double measured_device_seconds = 0;  // the same as measured
  double step_time = 0;                // predicted, in seconds
  std::optional<double> measured_step_time = {};
  double peak_bytes = 0;  // predicted, of the rank whose peak was measured
  std::optional<double> measured_peak_bytes = {};
};

// What choosing the row that is predicted to be the fastest costs.
struct GroupScore {
  std::string group;
  std::size_t rows = 0;
  double mape = 0;
  bool best_found = false;
  double regret = 0;  // measured time of the chosen row over the best, minus 1
};

struct TimeScore {
  std::size_t rows = 0;
  double mape = 0;            // mean of |predicted / measured - 1|
  double bias = 0;            // mean of predicted / measured - 1
  double median_error = 0;    // of |predicted / measured - 1|
  std::size_t pairs = 0;      // of rows of one group that were not equally fast
  double pairs_in_order = 0;  // the share of these whose predictions are in the same order
};

struct MemoryScore {
  std::size_t rows = 0;
  double mape = 0, bias = 0;
  double within_5 = 0, within_10 = 0;  // shares of rows within 5% and 10%
};

struct Scores {
  TimeScore time;
  MemoryScore memory;
  std::vector<GroupScore> groups;  // of at least two rows, in order of their first row
};

// If rows are predicted to be equally fast, the slowest counts as chosen.
Scores ScoresOf(const std::vector<Prediction>& predictions);

}  // namespace penstock
