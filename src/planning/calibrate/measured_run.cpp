#include "calibrate/measured_run.h"

#include <algorithm>

#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "scenario/machine/machine_file.h"
#include "scenario/own_fields.h"
#include "scenario/spelling.h"

namespace penstock {

std::string ReasonOf(const Error& error) {
  return SpellMentions(error.line(), [](std::string_view column) { return std::string(column); });
}

std::string ValueOf(const MeasuredRun& run, std::string_view column) {
  const Scenario& scenario = run.scenario;
  if (column == "samples") {
    return fmt::format("{}", std::int64_t{1} * scenario.microbatches.value_or(1) *
                                 scenario.micro_batch_size.value_or(1) * scenario.data.value_or(1));
  }
  if (const auto tag = run.tags.find(column); tag != run.tags.end()) return tag->second;
  return EffectiveValue(column, scenario);
}

Status CheckColumn(std::string_view column) {
  std::vector<std::string_view> known = OwnFieldNames();
  known.insert(known.end(), kTagColumns.begin(), kTagColumns.end());
  known.push_back("samples");
  if (std::ranges::find(known, column) != known.end()) return {};
  return InvalidArgument(
      "{} is no column of runs; {}", Quote(column),
      DidYouMean(column, known, "give names of options, or samples for the global batch"));
}

std::string Describe(const MeasuredRun& run, std::span<const std::string_view> columns) {
  std::string text;
  for (const std::string_view column : columns) {
    const std::string value = ValueOf(run, column);
    if (value.empty()) continue;
    const std::string_view between = text.empty() ? "" : ", ";
    // A job is a text of its own.
    text += column == "job" ? fmt::format("{}{}", between, value)
                            : fmt::format("{}{} {}", between, column, value);
  }
  return text;
}

}  // namespace penstock
