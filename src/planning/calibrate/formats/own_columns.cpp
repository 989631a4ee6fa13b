// Tables of a user's own runs: columns are scenario fields and what was measured.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/text/nearest.h"
#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "base/units.h"
#include "calibrate/formats/format.h"
#include "scenario/own_fields.h"

namespace penstock {
namespace {

constexpr std::string_view kSchedule = "schedule", kGlobalBatch = "global_batch",
                           kStepTime = "step_time", kIteration = "iteration_ms",
                           kThroughput = "tokens_per_second_per_device", kPeakBytes = "peak_bytes";
// Columns that are no fields.
constexpr std::array kMeasured = {kStepTime, kIteration, kThroughput, kPeakBytes};
constexpr std::array<std::string_view, 2> kTags = {"run", "set"};
constexpr std::array kMore = {kSchedule, kGlobalBatch};

std::vector<std::string_view> OtherColumns() {
  std::vector<std::string_view> names(kMeasured.begin(), kMeasured.end());
  names.insert(names.end(), kTags.begin(), kTags.end());
  names.insert(names.end(), kMore.begin(), kMore.end());
  return names;
}

bool IsTag(std::string_view column) { return std::ranges::find(kTags, column) != kTags.end(); }
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
Status SetMeasuredColumns(const CsvRow& row, RunTexts& texts) {
  if (row.Has(kStepTime)) {
    PENSTOCK_TRY(texts.step_time, SecondsOf(row, kStepTime));
  } else if (row.Has(kIteration)) {
    PENSTOCK_TRY(const double ms, row.Positive(kIteration));
    texts.step_time = ms / 1e3;
  } else if (row.Has(kThroughput)) {
    PENSTOCK_TRY(texts.tokens_per_second_per_device, row.Positive(kThroughput));
  }
  if (row.Has(kPeakBytes)) {
    PENSTOCK_TRY(texts.peak_bytes, BytesOf(row, kPeakBytes));
  }
  if (texts.step_time || texts.tokens_per_second_per_device || texts.peak_bytes) return {};
  return InvalidArgument("the row has nothing that was measured: {}", fmt::join(kMeasured, ", "));
}

}  // namespace

Status CheckOwnColumns(const CsvTable& table) {
  const std::vector<std::string_view> more = OtherColumns();
  bool measured = false;
  for (const std::string& column : table.columns) {
    measured = measured || IsMeasured(column);
    if (FindOwnField(column, more)) continue;
    std::vector<std::string_view> names = OwnFieldNames();
    names.insert(names.end(), more.begin(), more.end());
    return InvalidArgument(
        "column {} is no option of 'penstock simulate' and nothing that is measured; {}",
        Quote(column),
        DidYouMean(column, names, fmt::format("measured are {}", fmt::join(kMeasured, ", "))));
  }
  if (measured) return {};
  return InvalidArgument("no column says what was measured; add one of {}",
                         fmt::join(kMeasured, ", "));
}

Result<RunTexts> ReadOwnRow(const CsvTable& table, const CsvRow& row) {
  const std::vector<std::string_view> more = OtherColumns();
  RunTexts texts;
  for (const std::string& column : table.columns) {
    if (!row.Has(column) || IsMeasured(column)) continue;
    if (IsTag(column)) {
      texts.tags[column] = row.Text(column);
      continue;
    }
    PENSTOCK_TRY(const std::string name, FindOwnField(column, more));
    if (name == kSchedule) {
      texts.schedule = row.Text(column);
    } else if (name == kGlobalBatch && FindField(name) == nullptr) {
      PENSTOCK_TRY(texts.global_batch, row.Count(column));
    } else {
      texts.Set(name, row.Text(column));
    }
  }
  PENSTOCK_TRY_STATUS(SetMeasuredColumns(row, texts));
  return texts;
}

}  // namespace penstock
