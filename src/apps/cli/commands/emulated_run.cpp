#include "cli/commands/emulated_run.h"

#include <algorithm>
#include <limits>

#include "base/units.h"
#include "cli/options/option_values.h"
#include "cli/signals/interrupt.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

double Excess(double measured, double predicted) {
  return predicted > 0 ? measured / predicted - 1 : 0;
}

}  // namespace

void EmulatedRunOptions::Define(CLI::App& app) {
  app.option_defaults()->group("Run");
  app.add_flag("--run", asked_, "Also execute each schedule on emulated devices, and compare");
  AddText(app, "--unit", unit_,
          "Real time of one unit of --cost in the run (5ms, 200us); 1s with --model")
      ->type_name("TIME")
      ->default_str(std::string(kDefaultRunUnit));
}

Status EmulatedRunOptions::Check() const {
  if (!unit_) return {};
  if (!asked_) {
    return InvalidParameter("unit",
                            "has no effect here: nothing is run; add `run` or leave it out");
  }
  const auto seconds = ParseRunUnit(*unit_);
  return seconds ? Status() : tl::unexpected(seconds.error());
}

Result<std::vector<EmulatedRun>> EmulatedRunOptions::Run(const std::vector<Simulated>& all) const {
  return RunEmulated(all, unit_, CatchInterrupt());
}

Json ToJson(const Simulated& simulated, const EmulatedRun& run) {
  Json per_rank = Json::array();
  for (const RankResult& rank : run.measured.ranks) {
    per_rank.push_back({{"busy", rank.busy},
                        {"first_start", rank.first_start},
                        {"last_end", rank.last_end},
                        {"peak_memory", rank.peak_memory}});
  }
  return {{"makespan", run.measured.makespan},
          {"excess", Excess(run.measured.makespan, simulated.result.makespan)},
          {"bubble", run.measured.bubble},
          {"span_bubble", run.measured.span_bubble},
          {"peak_memory", run.measured.peak_memory},
          {"messages", run.measured.messages},
          {"unit_seconds", run.unit},
          {"makespan_seconds", run.makespan},
          {"cpu_seconds", run.cpu},
          {"shortest_action_seconds", run.shortest},
          {"worst_lateness_seconds", run.lateness},
          {"too_short", run.too_short()},
          {"drift", run.drift},
          {"busy_machine", run.busy.empty() ? Json() : Json(run.busy)},
          {"per_rank", std::move(per_rank)}};
}

Table EmulatedTable(const std::vector<Simulated>& all, const std::vector<EmulatedRun>& runs) {
  Table table;
  table.title = "Run on emulated devices";
  table.columns = {"schedule", "makespan: predicted", "measured", "off",      "bubble: predicted",
                   "measured", "memory: predicted",   "measured", "messages", "time",
                   "cpu"};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const SimulationResult& predicted = all[i].result;
    const SimulationResult& measured = runs[i].measured;
    const std::string& unit = all[i].chosen.memory_unit;
    table.rows.push_back(
        {all[i].chosen.label, FormatAmount(predicted.makespan, all[i].chosen.time_unit),
         FormatAmount(measured.makespan, all[i].chosen.time_unit),
         fmt::format("{:+.2f}%", 100 * Excess(measured.makespan, predicted.makespan)),
         FormatPercent(predicted.bubble), FormatPercent(measured.bubble),
         FormatAmount(predicted.peak_memory, unit), FormatAmount(measured.peak_memory, unit),
         fmt::format("{}", measured.messages), FormatAmount(runs[i].makespan, "s"),
         FormatAmount(runs[i].cpu, "s")});
  }
  return table;
}

std::string EmulatedText(const std::vector<Simulated>& all, const std::vector<EmulatedRun>& runs) {
  std::string text;
  double shortest = std::numeric_limits<double>::infinity();
  double lateness = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    text += fmt::format("{}: {}.\n", all[i].chosen.label, runs[i].drift);
    if (runs[i].shortest > 0) shortest = std::min(shortest, runs[i].shortest);
    lateness = std::max(lateness, runs[i].lateness);
  }
  if (runs.empty()) return text;
  if (!runs.front().busy.empty()) {
    text += fmt::format("Measured times may be too long: {}.\n", runs.front().busy);
  }
  text += fmt::format("One unit is {}; a thread woke up at most {} late.\n",
                      FormatSeconds(runs.front().unit), FormatSeconds(lateness));
  if (shortest < kShortestAction) {
    text += fmt::format(
        "The shortest action takes {}, too short to emulate well: give a --unit of at least {}.\n",
        FormatSeconds(shortest), FormatSeconds(runs.front().unit * kShortestAction / shortest));
  }
  return text;
}

}  // namespace penstock
