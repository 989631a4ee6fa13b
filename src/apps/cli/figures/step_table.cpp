#include "cli/figures/step_table.h"

#include <algorithm>

#include "base/units.h"

namespace penstock {

namespace {

void AddCheckpointCells(const StepEstimate& step, std::vector<std::string>& cells) {
  cells.push_back(step.checkpoints ? fmt::format("{} steps", step.checkpoints->steps) : "-");
  cells.push_back(step.checkpoints ? fmt::format("{:.1f}%", 100 * step.checkpoints->training_part)
                                   : "-");
  cells.push_back(fmt::format("{:.0f}", step.expected_tokens_per_second()));
}

}  // namespace

bool HaveSteps(const std::vector<Simulated>& all) {
  return !all.empty() && std::ranges::all_of(all, [](const Simulated& simulated) {
    return simulated.step.has_value();
  });
}

Table StepTable(const std::vector<Simulated>& all) {
  Table table;
  table.title = "Training step";
  table.columns = {"schedule", "step time",         "gradient sums",      "optimizer",
                   "weights",  "tokens per second", "TFLOP/s per device", "memory with states"};
  const bool fails = std::ranges::any_of(
      all, [](const Simulated& simulated) { return simulated.step->checkpoints.has_value(); });
  if (fails) {
    for (const char* column :
         {"checkpoint every", "time that trains", "expected tokens per second"}) {
      table.columns.emplace_back(column);
    }
  }
  for (const Simulated& simulated : all) {
    const StepEstimate& step = *simulated.step;
    table.rows.push_back({simulated.chosen.label, FormatSeconds(step.step_time),
                          FormatSeconds(step.reduce), FormatSeconds(step.update),
                          FormatSeconds(step.gather),
                          fmt::format("{:.0f}", step.tokens_per_second()),
                          fmt::format("{:.1f}", step.flops_per_device() / 1e12),
                          FormatBytes(static_cast<std::int64_t>(step.device_bytes()))});
    if (fails) AddCheckpointCells(step, table.rows.back());
  }
  return table;
}

}  // namespace penstock
