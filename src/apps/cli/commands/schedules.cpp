// penstock schedules: lists the algorithms with their constraints and costs.
#include <nlohmann/json.hpp>

#include "cli/command/command.h"
#include "cli/commands/algorithm_text.h"
#include "cli/commands/schedule_docs.h"
#include "cli/figures/comparison.h"
#include "cli/help/offered_values.h"
#include "cli/options/option_values.h"
#include "cli/options/pass_text.h"
#include "cli/options/scenario_options.h"
#include "cli/output/print_json.h"
#include "report/table.h"
#include "scenario/price/params.h"
#include "scenario/price/unused_fields.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

std::string Join(const std::vector<std::string_view>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

Json ToJson(const Algorithm& algorithm) {
  Json row;
  row["name"] = algorithm.name;
  row["aliases"] = algorithm.aliases;
  row["summary"] = algorithm.summary;
  row["when"] = algorithm.when;
  row["placement"] = ToText(algorithm.placement);
  row["constraint"] = algorithm.constraint;
  row["default_chunks"] = algorithm.supported.default_chunks;
  row["options"] = OptionNames(algorithm.supported);
  row["makespan"] = algorithm.makespan;
  row["memory"] = algorithm.memory;
  row["messages"] = MessagesText(algorithm);
  row["source"] = algorithm.source;
  return row;
}

// For schedules with more forwards, only the closed forms are listed, to stay fast.
constexpr double kMostSimulated = 1 << 20;

// One algorithm at the requested sizes.
struct AtSize {
  std::string refused;  // the reason if there is no schedule of this size, else empty
  Simulated simulated;
};

Result<AtSize> PriceAt(const Algorithm& algorithm, const ScenarioOptions& options) {
  AtSize at;
  auto chosen = Choose(options.scenario, algorithm, Given::kSupported);
  if (!chosen) {
    at.refused = options.AsGiven(std::move(chosen).error()).line();
    return at;
  }
  const ScheduleParams& params = chosen->params;
  const double forwards = double{1} * params.ranks * params.chunks * params.microbatches *
                          params.slices * params.steps * algorithm.supported.replicas;
  if (forwards > kMostSimulated) {
    at.simulated.chosen = std::move(*chosen);
    return at;
  }
  PENSTOCK_TRY_STATUS(MakeSchedule(options.scenario, *chosen));
  PENSTOCK_TRY(at.simulated, SimulateOne(std::move(*chosen), false));
  return at;
}

class SchedulesCommand : public Command {
 public:
  std::string Name() const override { return "schedules"; }
  std::string Summary() const override {
    return "List the schedule algorithms: constraints, closed forms, memory, source";
  }
  void Define(CLI::App& app) override {
    Offer(app.add_option("NAME", names_, "List only these schedules (default: all)"),
          [] { return OfferedSchedules(OfferedPaths::kNone); });
    for (const FieldGroup group : {FieldGroup::kShape, FieldGroup::kCosts, FieldGroup::kModel}) {
      options_.Define(app, group);
    }
    format_.Define(app);
    app.add_flag("--passes", passes_, "List the passes and prices of --pass and --price instead");
    AddText(app, "--docs", docs_, "Write FOLDER/schedules.md and its pictures instead")
        ->type_name("FOLDER");
    app.footer(
        "In the list, p is ranks, v chunks per rank, m microbatches, F and B the times of one rank "
        "and microbatch; memory is in activations of one rank and microbatch. With --ranks or "
        "--microbatches, one table compares closed forms with simulated figures (up to a million "
        "forwards per schedule).");
  }

  Result<int> Run() override {
    PENSTOCK_TRY(const OutputFormat format, format_.Format());
    const auto params = ParamsOf(options_.scenario);  // errors in the options themselves come first
    if (!params) return tl::unexpected(options_.AsGiven(params.error()));
    PENSTOCK_TRY_STATUS(FindAlgorithms());
    PENSTOCK_TRY_STATUS(RefuseUnused());
    if (passes_) {
      if (format == OutputFormat::kJson) {
        PrintObject(PassesJson());
      } else {
        fmt::print("{}", PassesText());
      }
      return kExitOk;
    }
    if (!docs_.empty()) {
      PENSTOCK_TRY_STATUS(WriteScheduleDocs(docs_));
      fmt::print("wrote {}/schedules.md\n", docs_);
      return kExitOk;
    }
    std::vector<AtSize> sized;
    if (Sized()) {
      for (const Algorithm& algorithm : algorithms_) {
        PENSTOCK_TRY(AtSize at, PriceAt(algorithm, options_));
        sized.push_back(std::move(at));
      }
    }
    if (format == OutputFormat::kJson) {
      PrintJson(sized);
    } else if (!sized.empty()) {
      PrintComparison(sized, format);
    } else if (format == OutputFormat::kCsv) {
      PrintCsv();
    } else {
      PrintList();
    }
    return kExitOk;
  }

 private:
  Status FindAlgorithms() {
    for (const std::string& name : names_) {
      PENSTOCK_TRY(const Algorithm* algorithm, FindAlgorithm(name));
      algorithms_.push_back(*algorithm);
    }
    if (names_.empty()) algorithms_.assign(Catalog().begin(), Catalog().end());
    return {};
  }

  bool Sized() const { return options_.scenario.ranks || options_.scenario.microbatches; }

  Status RefuseUnused() const {
    if (passes_) {
      if (!names_.empty() || !docs_.empty()) {
        return InvalidArgument("--passes lists no schedules; leave out {}",
                               docs_.empty() ? "their names" : "--docs");
      }
      return RefuseFields("--passes lists no schedules");
    }
    if (!docs_.empty()) {
      if (!names_.empty()) {
        return InvalidArgument("--docs writes every schedule; leave out the names");
      }
      PENSTOCK_TRY_STATUS(RefuseFields("--docs writes every schedule at its own size"));
      if (!format_.format && !format_.json) return {};
      return InvalidArgument("{} has no effect here: --docs writes Markdown; leave it out",
                             format_.json ? "--json" : "--format");
    }
    if (!Sized()) {
      return RefuseFields("without --ranks or --microbatches nothing is priced");
    }
    const Status status = RefuseUnusedByAll(options_.scenario, {}, algorithms_);
    return status ? status : tl::unexpected(options_.AsGiven(status.error()));
  }

  // Refuses every option of a schedule.
  Status RefuseFields(const std::string& why) const {
    const Status status = RefuseOthers(options_.scenario, {}, why);
    return status ? status : tl::unexpected(options_.AsGiven(status.error()));
  }

  void PrintJson(const std::vector<AtSize>& sized) const {
    Json rows = Json::array();
    for (const Algorithm& algorithm : algorithms_) {
      Json row = ToJson(algorithm);
      if (!sized.empty()) {
        const AtSize& at = sized[rows.size()];
        AddUnits(at.simulated.chosen, row);
        row["closed_form"] = ClosedFormJson(at.simulated.chosen);
        row["simulated"] = at.simulated.ran() ? FiguresJson(at.simulated) : Json(nullptr);
        if (!at.refused.empty()) row["refused"] = at.refused;
      }
      rows.push_back(std::move(row));
    }
    PrintObject({{"schedules", std::move(rows)}});
  }

  static void PrintComparison(std::vector<AtSize>& sized, OutputFormat format) {
    std::vector<Simulated> priced;
    for (AtSize& at : sized) {
      if (at.refused.empty()) priced.push_back(std::move(at.simulated));
    }
    const Table table = ComparisonTable(priced);
    fmt::print("{}", format == OutputFormat::kCsv ? FormatTableCsv(table) : FormatTable(table));
    if (format == OutputFormat::kCsv) return;
    fmt::print("\n{}", UnitsText(priced));
    for (const AtSize& at : sized) {
      if (!at.refused.empty()) fmt::print("{}\n", at.refused);
    }
  }

  void PrintCsv() const {
    Table table;
    table.columns = {"name", "aliases", "chunks", "makespan", "memory", "constraint", "source"};
    for (const Algorithm& algorithm : algorithms_) {
      table.rows.push_back({std::string(algorithm.name), Join(algorithm.aliases),
                            ChunksText(algorithm.supported), std::string(algorithm.makespan),
                            std::string(algorithm.memory), std::string(algorithm.constraint),
                            std::string(algorithm.source)});
    }
    fmt::print("{}", FormatTableCsv(table));
  }

  void PrintList() const {
    for (const Algorithm& algorithm : algorithms_) {
      fmt::print("{}", algorithm.name);
      if (!algorithm.aliases.empty()) fmt::print(" ({})", Join(algorithm.aliases));
      fmt::print(": {}\n", algorithm.summary);
      fmt::print("  chunks      {}, {}\n", ChunksText(algorithm.supported),
                 ToText(algorithm.placement));
      fmt::print("  takes       {}\n", ConstraintText(algorithm));
      fmt::print("  makespan    {}\n", algorithm.makespan);
      fmt::print("  memory      {}\n", algorithm.memory);
      fmt::print("  messages    {}\n", MessagesText(algorithm));
      fmt::print("  source      {}\n\n", algorithm.source);
    }
  }

  ScenarioOptions options_;
  FormatOptions format_;
  std::vector<std::string> names_;
  std::vector<Algorithm> algorithms_;  // to list
  bool passes_ = false;
  std::string docs_;
};

}  // namespace

std::unique_ptr<Command> MakeSchedulesCommand() { return std::make_unique<SchedulesCommand>(); }

}  // namespace penstock
