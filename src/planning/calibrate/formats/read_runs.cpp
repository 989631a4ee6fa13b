#include "calibrate/formats/read_runs.h"

#include <algorithm>

#include "calibrate/formats/format.h"
#include "scenario/fields.h"

namespace penstock {
namespace {

const RunFormat* Recognize(const CsvTable& table) {
  for (const RunFormat& format : RunFormats()) {
    const bool has_all = std::ranges::all_of(
        format.columns, [&](std::string_view column) { return table.Has(column); });
    if (has_all) return &format;
  }
  return nullptr;
}

Status SetFields(const FieldTexts& texts, Scenario& scenario) {
  for (const auto& [name, text] : texts) {
    const ScenarioField* const field = FindField(name);
    if (field == nullptr) {
      return InvalidArgument("the row needs `{}`, which this version does not have", name);
    }
    PENSTOCK_TRY_STATUS(SetText(*field, text, scenario));
  }
  return CheckRanges(scenario);
}

Status SetMicrobatches(const RunTexts& texts, Scenario& scenario) {
  if (!texts.global_batch) return {};
  if (scenario.microbatches) {
    return InvalidParameter("global_batch", "{}: the row has `microbatches`, too; give one",
                            *texts.global_batch);
  }
  const std::int64_t per_step =
      std::int64_t{1} * scenario.micro_batch_size.value_or(1) * scenario.data.value_or(1);
  if (*texts.global_batch % per_step != 0) {
    return InvalidParameter("global_batch",
                            "{}: replicas and microbatches of {} samples do not divide it",
                            *texts.global_batch, per_step);
  }
  scenario.microbatches = static_cast<int>(*texts.global_batch / per_step);
  return {};
}

Result<MeasuredRun> RunOf(RunTexts texts) {
  MeasuredRun run;
  PENSTOCK_TRY_STATUS(SetFields(texts.fields, run.scenario));
  PENSTOCK_TRY_STATUS(SetFields(texts.usual, run.usual));
  PENSTOCK_TRY_STATUS(SetMicrobatches(texts, run.scenario));
  if (texts.schedule.empty()) {
    texts.schedule = run.scenario.chunks.value_or(1) > 1 ? "interleaved" : "1f1b";
  }
  run.scenario.schedules.push_back({Candidate::Kind::kAlgorithm, texts.schedule});
  run.step_time = texts.step_time;
  run.tokens_per_second_per_device = texts.tokens_per_second_per_device;
  run.peak_bytes = texts.peak_bytes;
  run.peak_of = texts.peak_of;
  run.tags = std::move(texts.tags);
  return run;
}

}  // namespace

Result<MeasuredRuns> ReadMeasuredRuns(const std::string& path) {
  PENSTOCK_TRY(const CsvTable table, ReadCsvTable(path));
  const RunFormat* const format = Recognize(table);
  if (format == nullptr) {
    const Status known = CheckOwnColumns(table);
    if (!known) return tl::unexpected(In(fmt::format("{}: line 1", path), known.error()));
  }
  MeasuredRuns runs;
  runs.path = path;
  runs.format = format == nullptr ? "options of penstock" : format->name;
  if (format != nullptr) runs.group_by = format->group_by;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const CsvRow row(table, i);
    const int number = static_cast<int>(i) + 1;
    auto texts = format == nullptr ? ReadOwnRow(table, row) : format->read(row);
    auto run = texts ? RunOf(*std::move(texts)) : tl::unexpected(std::move(texts).error());
    if (run) {
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
