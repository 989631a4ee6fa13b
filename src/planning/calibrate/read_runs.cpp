#include "calibrate/read_runs.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/text/nearest.h"
#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "base/units.h"
#include "calibrate/csv_table.h"
#include "scenario/fields.h"
#include "scenario/own_fields.h"

namespace penstock {
namespace {

constexpr std::string_view kSchedule = "schedule", kGlobalBatch = "global_batch",
                           kStepTime = "step_time", kIteration = "iteration_ms",
                           kThroughput = "tokens_per_second_per_device", kPeakBytes = "peak_bytes",
                           kPeakOf = "peak_of";
constexpr std::string_view kDefault = "default:";
// Columns that are no fields.
constexpr std::array kMeasured = {kStepTime, kIteration, kThroughput, kPeakBytes};
constexpr std::array kOthers = {kSchedule,      kGlobalBatch,  kStepTime, kIteration,
                                kThroughput,    kPeakBytes,    kPeakOf,   kTagColumns[0],
                                kTagColumns[1], kTagColumns[2]};
// Tables of other systems, by a column that only they have.
constexpr std::pair<std::string_view, std::string_view> kConvertible[] = {
    {"micro_batch", "vTrain"},
    {"time_per_step_s", "NeMo"},
    {"measured_iter_ms", "Aceso and Mist"},
    {"tok_s_gpu", "Megatron-Bridge"},
    {"iter_s_median", "Megatron-LM's tests"}};

bool IsMeasured(std::string_view column) {
  return std::ranges::find(kMeasured, column) != kMeasured.end();
}

// A number, or a number with a unit of time ("250ms"). Returns seconds.
Result<double> SecondsOf(const CsvRow& row, std::string_view column) {
  const std::string text(row.Text(column));
  const auto number = ParseNumber(text);
  const auto seconds = ParseSeconds(text);
  const double value = number ? *number : seconds ? *seconds : 0;
  if (value > 0) return value;
  return RefuseCell(row, column, "seconds, or a time with its unit (250ms), are needed");
}

Result<double> BytesOf(const CsvRow& row, std::string_view column) {
  const std::string text(row.Text(column));
  const auto number = ParseNumber(text);
  const auto bytes = ParseBytes(text);
  const double value = number ? *number : bytes ? static_cast<double>(*bytes) : 0;
  if (value > 0) return value;
  return RefuseCell(row, column, "bytes, or a size with its unit (40GiB), are needed");
}

// Sets what was measured, of the first column of several that the row has.
Status SetMeasuredColumns(const CsvRow& row, MeasuredRun& run) {
  if (row.Has(kStepTime)) {
    PENSTOCK_TRY(run.step_time, SecondsOf(row, kStepTime));
  } else if (row.Has(kIteration)) {
    PENSTOCK_TRY(const double ms, row.Positive(kIteration));
    run.step_time = ms / 1e3;
  } else if (row.Has(kThroughput)) {
    PENSTOCK_TRY(run.tokens_per_second_per_device, row.Positive(kThroughput));
  }
  if (row.Has(kPeakBytes)) {
    PENSTOCK_TRY(run.peak_bytes, BytesOf(row, kPeakBytes));
  }
  if (row.Has(kPeakOf)) {
    const std::string_view rank = row.Text(kPeakOf);
    if (rank != "worst" && rank != "last") {
      return RefuseCell(row, kPeakOf, "worst or last is needed");
    }
    run.peak_of = rank == "last" ? MeasuredRun::PeakOf::kLast : MeasuredRun::PeakOf::kWorst;
  }
  if (run.step_time || run.tokens_per_second_per_device || run.peak_bytes) return {};
  return InvalidArgument("the row has nothing that was measured: {}", fmt::join(kMeasured, ", "));
}

std::string_view WithoutDefault(std::string_view column) {
  if (column.starts_with(kDefault)) column.remove_prefix(kDefault.size());
  return column;
}

tl::unexpected<Error> RefuseColumn(const CsvTable& table, std::string_view column,
                                   const std::string& path) {
  for (const auto& [known, system] : kConvertible) {
    if (!table.Has(known)) continue;
    return InvalidArgument(
        "a table of {}; convert it in a clone of Penstock's repository: bench/run tables {} "
        "-o FOLDER",
        system, path);
  }
  std::vector<std::string_view> names = OwnFieldNames();
  names.insert(names.end(), kOthers.begin(), kOthers.end());
  return InvalidArgument(
      "column {} is no option of 'penstock simulate' and nothing that is measured; {}",
      Quote(column),
      DidYouMean(WithoutDefault(column), names,
                 fmt::format("measured are {}", fmt::join(kMeasured, ", "))));
}

// Renames the columns as fields are called: `m` is `microbatches`.
Status NameColumns(const std::string& path, CsvTable& table) {
  for (std::string& column : table.columns) {
    const std::string_view word = WithoutDefault(column);
    const auto name = word == column ? FindOwnField(word, kOthers) : FindOwnField(word);
    if (!name) return RefuseColumn(table, column, path);
    column = word == column ? *name : fmt::format("{}{}", kDefault, *name);
  }
  if (std::ranges::any_of(table.columns, IsMeasured)) return {};
  return InvalidArgument("no column says what was measured; add one of {}",
                         fmt::join(kMeasured, ", "));
}

// Sets the microbatches, if the row has a global batch.
Status SetMicrobatches(const CsvRow& row, Scenario& scenario) {
  if (!row.Has(kGlobalBatch)) return {};
  PENSTOCK_TRY(const int global_batch, row.Count(kGlobalBatch));
  if (scenario.microbatches) {
    return InvalidParameter(kGlobalBatch, "{}: the row has `microbatches`, too; give one",
                            global_batch);
  }
  const std::int64_t per_step =
      std::int64_t{1} * scenario.micro_batch_size.value_or(1) * scenario.data.value_or(1);
  if (global_batch % per_step != 0) {
    return InvalidParameter(kGlobalBatch,
                            "{}: replicas and microbatches of {} samples do not divide it",
                            global_batch, per_step);
  }
  scenario.microbatches = static_cast<int>(global_batch / per_step);
  return {};
}

Result<MeasuredRun> ReadRow(const CsvTable& table, const CsvRow& row) {
  MeasuredRun run;
  PENSTOCK_TRY_STATUS(SetMeasuredColumns(row, run));
  for (const std::string& column : table.columns) {
    const std::string text(row.Text(column));
    if (text.empty()) continue;
    if (std::ranges::find(kTagColumns, column) != kTagColumns.end()) run.tags[column] = text;
    Scenario& scenario = column.starts_with(kDefault) ? run.usual : run.scenario;
    if (const ScenarioField* field = FindField(WithoutDefault(column))) {
      PENSTOCK_TRY_STATUS(SetText(*field, text, scenario));
    }
  }
  PENSTOCK_TRY_STATUS(CheckRanges(run.scenario));
  PENSTOCK_TRY_STATUS(CheckRanges(run.usual));
  PENSTOCK_TRY_STATUS(SetMicrobatches(row, run.scenario));
  std::string schedule(row.Text(kSchedule));
  if (schedule.empty()) schedule = run.scenario.chunks.value_or(1) > 1 ? "interleaved" : "1f1b";
  run.scenario.schedules.push_back({Candidate::Kind::kAlgorithm, schedule});
  return run;
}

}  // namespace

Result<MeasuredRuns> ReadMeasuredRuns(const std::string& path) {
  PENSTOCK_TRY(CsvTable table, ReadCsvTable(path));
  const Status named = NameColumns(path, table);
  if (!named) return tl::unexpected(In(fmt::format("{}: line 1", path), named.error()));
  MeasuredRuns runs;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const CsvRow row(table, i);
    const int number = static_cast<int>(i) + 1;
    if (auto run = ReadRow(table, row)) {
      run->row = number;
      run->line = row.line();
      runs.runs.push_back(*std::move(run));
    } else {
      runs.refused.push_back({number, row.line(), ReasonOf(run.error())});
    }
  }
  return runs;
}

}  // namespace penstock
