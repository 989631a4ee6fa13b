// Runs that someone measured, as scenarios.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "scenario/scenario.h"

namespace penstock {

// Columns that tell runs apart: a name, a set whose rows do not compete with others, and a job,
// whose rows compete.
inline constexpr std::array<std::string_view, 3> kTagColumns = {"run", "set", "job"};

// One row of a table.
struct MeasuredRun {
  // Which rank held the measured peak.
  enum class PeakOf { kWorst, kLast };

  int row = 0;   // from 1
  int line = 0;  // in the file
  Scenario scenario;
  // Values of fields that neither the row nor the user sets: what is known of a table, not of a
  // row.
  Scenario usual = {};
  std::optional<double> step_time;                     // in seconds
  std::optional<double> tokens_per_second_per_device;  // if there is no time
  std::optional<double> peak_bytes;                    // of a rank
  PeakOf peak_of = PeakOf::kWorst;
  // Columns that tell runs apart and are no fields of the scenario.
  std::map<std::string, std::string, std::less<>> tags;
};

// A row that cannot be priced.
struct RefusedRow {
  int row = 0;         // from 1
  int line = 0;        // in the file
  std::string reason;  // one line, without the place
};

// Returns an error about a row as its reason: parameters are columns.
std::string ReasonOf(const Error& error);

struct MeasuredRuns {
  std::vector<MeasuredRun> runs;
  std::vector<RefusedRow> refused;

  std::size_t rows() const { return runs.size() + refused.size(); }
};

// Returns the value that a run has in a column: a field of the scenario, a tag, or "samples", its
// global batch. Empty if it has none.
std::string ValueOf(const MeasuredRun& run, std::string_view column);
// Refuses a column that no run can have. Errors: kInvalidArgument, with the nearest name.
Status CheckColumn(std::string_view column);
// Returns the values in several columns as one line: "device a100, nodes 8x8". Leaves out columns
// that the run lacks.
std::string Describe(const MeasuredRun& run, std::span<const std::string_view> columns);

}  // namespace penstock
