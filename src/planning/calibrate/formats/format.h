// Formats of tables of runs, each in its file. To add one, write a reader and add it to the table
// in formats.cpp.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "calibrate/csv_table.h"
#include "calibrate/measured_run.h"

namespace penstock {

// A row before its texts are set as fields.
struct RunTexts {
  FieldTexts fields;
  FieldTexts usual = {};                 // for fields that neither the row nor the user sets
  std::string schedule;                  // empty: 1f1b, with chunks interleaved
  std::optional<double> step_time = {};  // in seconds
  std::optional<double> tokens_per_second_per_device = {};  // if there is no time
  std::optional<int> global_batch = {};                     // in samples, if no field says it
  std::optional<double> peak_bytes = {};
  MeasuredRun::PeakOf peak_of = MeasuredRun::PeakOf::kWorst;
  std::map<std::string, std::string, std::less<>> tags = {};

  void Set(std::string_view field, std::string_view text) { fields.emplace_back(field, text); }
  void Set(std::string_view field, int value) { Set(field, std::to_string(value)); }
};

struct RunFormat {
  std::string_view name;
  std::vector<std::string_view> columns;  // a header that has all of these is of this format
  Result<RunTexts> (*read)(const CsvRow& row);
  // Columns of rows that compete, if they are not those that a user does not choose: in a table of
  // one best configuration per model and device, no two rows share these.
  std::vector<std::string_view> group_by = {};
};

// The formats of other systems.
std::span<const RunFormat> RunFormats();

// Returns the microbatches of each replica. Errors: kInvalidArgument about `column`, which has the
// global batch, if it does not divide.
Result<int> MicrobatchesOf(const CsvRow& row, std::string_view column, int micro_batch,
                           int replicas);

// Formats, by file.
Result<RunTexts> ReadVtrainRow(const CsvRow& row);
Result<RunTexts> ReadNemoRow(const CsvRow& row);
Result<RunTexts> ReadAcesoRow(const CsvRow& row);
Result<RunTexts> ReadMegatronBridgeRow(const CsvRow& row);
Result<RunTexts> ReadMegatronTestsRow(const CsvRow& row);

// A table whose columns are names of scenario fields. Errors: kInvalidArgument for other columns.
Status CheckOwnColumns(const CsvTable& table);
Result<RunTexts> ReadOwnRow(const CsvTable& table, const CsvRow& row);

}  // namespace penstock
