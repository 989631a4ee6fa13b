// penstock simulate: prices one schedule or compares several.
#include <algorithm>
#include <filesystem>
#include <set>

#include "base/text/quote.h"
#include "cli/command.h"
#include "cli/commands/emulated_run.h"
#include "cli/commands/simulated.h"
#include "cli/options/option_effects.h"
#include "cli/options/option_values.h"
#include "cli/options/simulate_config.h"
#include "interop/primus/dump.h"
#include "report/table.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

// Moves the fields of a nested object to the top: {"a": {"b": 1}} becomes {"a_b": 1}.
void Flatten(nlohmann::ordered_json& object, const std::string& key) {
  const auto nested = object.find(key);
  if (nested == object.end()) return;
  const nlohmann::ordered_json fields = std::move(*nested);
  object.erase(key);
  for (const auto& [name, value] : fields.items()) object[key + "_" + name] = value;
}

// The figures of --json unrounded, under the same names; null where a schedule lacks one.
Table FullFigures(const std::vector<Simulated>& all, const std::vector<EmulatedRun>& runs) {
  std::vector<nlohmann::ordered_json> objects;
  Table table;
  for (std::size_t i = 0; i < all.size(); ++i) {
    nlohmann::ordered_json object = ToJson(all[i], false);
    object.erase("per_rank");
    Flatten(object, "overlap_sum");
    Flatten(object, "closed_form");
    if (!runs.empty()) {
      object["measured"] = ToJson(all[i], runs[i]);
      object["measured"].erase("per_rank");
      Flatten(object, "measured");
    }
    for (const auto& [key, value] : object.items()) {
      if (std::find(table.columns.begin(), table.columns.end(), key) == table.columns.end()) {
        table.columns.push_back(key);
      }
    }
    objects.push_back(std::move(object));
  }
  for (const nlohmann::ordered_json& object : objects) {
    std::vector<std::string>& row = table.rows.emplace_back();
    for (const std::string& key : table.columns) {
      const auto value = object.find(key);
      row.push_back(value == object.end() ? "null"
                    : value->is_string()  ? value->get<std::string>()
                                          : value->dump());
    }
  }
  return table;
}

Table TimeStepTable(const Simulated& simulated) {
  Table table;
  table.columns = {"schedule", "rank", "action", "start", "end"};
  const Schedule& schedule = simulated.chosen.schedule;
  for (std::size_t r = 0; r < schedule.lanes.size(); ++r) {
    for (std::size_t i = 0; i < schedule.lanes[r].size(); ++i) {
      const Span& span = simulated.timeline.spans[r][i];
      table.rows.push_back({simulated.chosen.label, fmt::format("{}", r),
                            ToText(schedule.lanes[r][i]), fmt::format("{}", span.start),
                            fmt::format("{}", span.end)});
    }
  }
  return table;
}

class SimulateCommand : public Command {
 public:
  std::string Name() const override { return "simulate"; }
  std::string Summary() const override { return "Price schedules: makespan, bubbles, memory"; }
  void Define(CLI::App& app) override {
    options_.DefineSource(app);
    options_.DefineShape(app);
    options_.DefineCosts(app);
    options_.passes.Define(app);
    run_.Define(app);
    options_.DefineFormat(app);
    app.add_flag("--time-steps", time_steps_, "Add every action with its start and end");
    AddText(app, "--dump", dump_,
            "Write FOLDER/SCHEDULE/pp_rank_N.json, as Primus's simulator does")
        ->type_name("FOLDER");
    app.footer("Several schedules share one table: penstock simulate gpipe 1f1b interleaved -p 8");
  }

  Result<int> Run() override {
    PENSTOCK_TRY(const OutputFormat format, options_.Format());
    PENSTOCK_TRY_STATUS(run_.Check());
    PENSTOCK_TRY(const std::vector<Simulated> all, SimulateAll());
    if (!dump_.empty()) PENSTOCK_TRY_STATUS(Dump(all));
    std::vector<EmulatedRun> runs;
    if (run_.asked()) {
      PENSTOCK_TRY(runs, run_.Run(all));
    }
    switch (format) {
      case OutputFormat::kJson:
        PrintJson(all, runs);
        break;
      case OutputFormat::kCsv:
        PrintCsv(all, runs);
        break;
      case OutputFormat::kTable:
        PrintTables(all, runs);
        break;
    }
    return kExitOk;
  }

 private:
  Result<std::vector<Simulated>> SimulateAll() {
    PENSTOCK_TRY(Choice choice, ChooseSchedules(options_));
    if (dump_.empty()) dump_ = choice.output_dir;
    return SimulateEach(std::move(choice.schedules), time_steps_ || !dump_.empty());
  }

  Status Dump(const std::vector<Simulated>& all) const {
    std::set<std::string> names;
    for (const Simulated& simulated : all) {
      const std::string& label = simulated.chosen.label;
      const std::string name = std::filesystem::path(label).filename().string();
      if (name.empty() || name == "." || name == "..") {
        return InvalidArgument("{} cannot name a folder below {}", Quote(label), dump_);
      }
      if (!names.insert(name).second) {
        return InvalidArgument("two schedules are called {}: one dump would replace the other",
                               Quote(name));
      }
      PENSTOCK_TRY_STATUS(
          SavePrimusDump({simulated.chosen.schedule, simulated.timeline, simulated.chosen.costs,
                          simulated.result, simulated.chosen.memory_unit},
                         (std::filesystem::path(dump_) / name).string()));
    }
    return {};
  }

  void PrintJson(const std::vector<Simulated>& all, const std::vector<EmulatedRun>& runs) const {
    nlohmann::ordered_json array = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < all.size(); ++i) {
      array.push_back(ToJson(all[i], time_steps_));
      if (!runs.empty()) array.back()["measured"] = ToJson(all[i], runs[i]);
    }
    fmt::print("{}\n", array.dump(2));
  }

  void PrintCsv(const std::vector<Simulated>& all, const std::vector<EmulatedRun>& runs) const {
    if (!time_steps_) {
      fmt::print("{}", FormatTableCsv(FullFigures(all, runs)));
      return;
    }
    Table table;
    for (const Simulated& simulated : all) {
      Table steps = TimeStepTable(simulated);
      table.columns = steps.columns;
      table.rows.insert(table.rows.end(), steps.rows.begin(), steps.rows.end());
    }
    fmt::print("{}", FormatTableCsv(table));
  }

  void PrintTables(const std::vector<Simulated>& all, const std::vector<EmulatedRun>& runs) const {
    fmt::print("{}", FormatTable(ComparisonTable(all)));
    if (all.size() == 1)
      fmt::print("\n{}", FormatTable(RankTable(all.front().result, all.front().chosen.time_unit,
                                               all.front().chosen.memory_unit)));
    if (time_steps_) {
      for (const Simulated& simulated : all) {
        fmt::print("\n{}", FormatTable(TimeStepTable(simulated)));
      }
    }
    if (!runs.empty()) fmt::print("\n{}", FormatTable(EmulatedTable(all, runs)));
    fmt::print("\n{}{}", EmulatedText(all, runs), UnitsText(all));
    if (!dump_.empty()) fmt::print("Primus's dumps are in {}.\n", dump_);
  }

  ScheduleOptions options_;
  EmulatedRunOptions run_;
  std::string dump_;
  bool time_steps_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeSimulateCommand() { return std::make_unique<SimulateCommand>(); }

}  // namespace penstock
