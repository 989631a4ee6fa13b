// penstock diff: compares two schedules: what moved, and where the time went.
#include <algorithm>

#include "cli/command/command.h"
#include "cli/figures/comparison.h"
#include "cli/options/option_values.h"
#include "cli/options/scenario_options.h"
#include "cli/output/print_json.h"
#include "cli/output/terminal.h"
#include "explain/difference.h"
#include "report/table.h"
#include "report/time_use.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDefaultMoves = 10;

ExplainedRun ExplainedRunOf(const Simulated& simulated,
                            const std::vector<std::vector<Bubble>>& bubbles) {
  return {simulated.chosen.schedule, simulated.timeline, bubbles};
}

// "12 B, 3 F"; "none"
std::string CountsText(const std::array<std::size_t, kOpCount>& counts) {
  std::string text;
  for (std::size_t op = 0; op < counts.size(); ++op) {
    if (counts[op] == 0) continue;
    if (!text.empty()) text += ", ";
    text += fmt::format("{} {}", counts[op], OpText(static_cast<Op>(op)));
  }
  return text.empty() ? "none" : text;
}

// Returns runs with the measured times of dumps instead of the simulated ones.
std::vector<Simulated> MeasuredOnly(std::vector<Simulated> all) {
  std::vector<Simulated> runs;
  for (Simulated& run : all) {
    if (run.measured) {
      runs.back() = std::move(run);
    } else {
      runs.push_back(std::move(run));
    }
  }
  return runs;
}

class DiffCommand : public Command {
 public:
  std::string Name() const override { return "diff"; }
  std::string Summary() const override {
    return "Compare two schedules or timelines: what moved and where the time went";
  }
  void Define(CLI::App& app) override {
    options_.DefineSchedules(app);
    app.option_defaults()->group("Output");
    AddInt(app, "--moves", moves_,
           fmt::format("Actions to list, which moved farthest (default {})", kDefaultMoves),
           {.least = 0});
    app.add_flag("--json", json_, "Print the differences as JSON");
    app.footer("Each schedule may have its own options: penstock diff 1f1b zbv:comm=0.1 -p 8");
  }

  Result<int> Run() override {
    PENSTOCK_TRY(std::vector<Simulated> all, options_.Simulate());
    const std::size_t named = all.size();
    all = WithMeasured(std::move(all));
    if (named == 2) all = MeasuredOnly(std::move(all));
    if (all.size() != 2) {
      return InvalidArgument(
          "diff compares two schedules, not {}; name two, or a dump with measured times", named);
    }
    const Explanation a = ExplanationOf(all[0]), b = ExplanationOf(all[1]);
    const Difference difference =
        Compare(ExplainedRunOf(all[0], a.bubbles), ExplainedRunOf(all[1], b.bubbles));
    if (json_) {
      PrintObject(ToJson(all, difference));
    } else {
      fmt::print("{}", ConclusionsText(options_.scenario, all));
      Print(all, difference);
    }
    return kExitOk;
  }

 private:
  std::size_t Listed(const Difference& difference) const {
    const int most = moves_.value_or(kDefaultMoves);
    std::size_t count = 0;
    while (count < difference.common.size() && count < static_cast<std::size_t>(most) &&
           difference.common[count].start_a != difference.common[count].start_b) {
      ++count;
    }
    return count;
  }

  Table UseTable(const std::vector<Simulated>& all, const Difference& difference) const {
    const TableUnits units = UnitsOf(all);
    const auto text = [&](double time) { return units.Time(all[0].chosen, time); };
    Table table = TimeUseTable({all[0].chosen.label, all[1].chosen.label},
                               {difference.a, difference.b}, text);
    table.rows.push_back(
        ComparedRow("makespan", {all[0].result.makespan, all[1].result.makespan}, text));
    return table;
  }

  Table MovesTable(const std::vector<Simulated>& all, const Difference& difference) const {
    Table table;
    table.title = "Moved farthest";
    table.columns = {"action", "rank", "start: " + all[0].chosen.label, all[1].chosen.label,
                     "difference"};
    const TableUnits units = UnitsOf(all);
    const auto text = [&](double time) { return units.Time(all[0].chosen, time); };
    for (std::size_t i = 0; i < Listed(difference); ++i) {
      const Moved& moved = difference.common[i];
      const std::string rank = moved.rank_a == moved.rank_b
                                   ? fmt::format("{}", moved.rank_a)
                                   : fmt::format("{} -> {}", moved.rank_a, moved.rank_b);
      const double by = moved.start_b - moved.start_a;
      table.rows.push_back(
          {ToText(moved.part), rank, text(moved.start_a), text(moved.start_b), WithSign(text(by))});
    }
    return table;
  }

  void Print(const std::vector<Simulated>& all, const Difference& difference) const {
    fmt::print("{}\n", TableText(UseTable(all, difference)));
    fmt::print("{} actions are in both, {} of them after another action than before",
               difference.common.size(), difference.reordered);
    if (difference.other_rank > 0) fmt::print(", {} on another rank", difference.other_rank);
    fmt::print(".\nOnly in {}: {}. Only in {}: {}.\n", all[0].chosen.label,
               CountsText(difference.only_a), all[1].chosen.label, CountsText(difference.only_b));
    if (Listed(difference) > 0) fmt::print("\n{}", TableText(MovesTable(all, difference)));
  }

  static Json UseJson(const TimeUse& use) {
    Json by_op = Json::object(), idle = Json::object();
    for (std::size_t op = 0; op < kOpCount; ++op) {
      if (use.by_op[op] != 0) by_op[std::string(OpText(static_cast<Op>(op)))] = use.by_op[op];
    }
    for (std::size_t cause = 0; cause < kBubbleCauses; ++cause) {
      idle[std::string(NameOf(static_cast<BubbleCause>(cause)))] = use.bubbles[cause];
    }
    return {{"busy", std::move(by_op)}, {"idle", std::move(idle)}};
  }

  static Json CountsJson(const std::array<std::size_t, kOpCount>& counts) {
    Json json = Json::object();
    for (std::size_t op = 0; op < kOpCount; ++op) {
      if (counts[op] != 0) json[std::string(OpText(static_cast<Op>(op)))] = counts[op];
    }
    return json;
  }

  Json ToJson(const std::vector<Simulated>& all, const Difference& difference) const {
    Json schedules = Json::array(), moved = Json::array();
    const TimeUse* const uses[] = {&difference.a, &difference.b};
    const std::array<std::size_t, kOpCount>* const only[] = {&difference.only_a,
                                                             &difference.only_b};
    for (std::size_t i = 0; i < 2; ++i) {
      Json object = {{"schedule", all[i].chosen.label}};
      AddUnits(all[i].chosen, object);
      object["makespan"] = all[i].result.makespan;
      object["time_per_rank"] = UseJson(*uses[i]);
      object["only_here"] = CountsJson(*only[i]);
      schedules.push_back(std::move(object));
    }
    for (std::size_t i = 0; i < Listed(difference); ++i) {
      const Moved& each = difference.common[i];
      moved.push_back({{"action", ToText(each.part)},
                       {"ranks", {each.rank_a, each.rank_b}},
                       {"starts", {each.start_a, each.start_b}}});
    }
    return {{"schedules", std::move(schedules)},
            {"common", difference.common.size()},
            {"reordered", difference.reordered},
            {"on_another_rank", difference.other_rank},
            {"moved", std::move(moved)}};
  }

  ScenarioOptions options_;
  bool json_ = false;
  std::optional<int> moves_;
};

}  // namespace

std::unique_ptr<Command> MakeDiffCommand() { return std::make_unique<DiffCommand>(); }

}  // namespace penstock
