// penstock schedules: lists the algorithms with their constraints and costs.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/folders.h"
#include "base/result.h"
#include "cli/command/command.h"
#include "cli/commands/algorithm_text.h"
#include "cli/figures/comparison.h"
#include "cli/help/offered_values.h"
#include "cli/options/option_values.h"
#include "cli/options/output_format.h"
#include "cli/options/pass_text.h"
#include "cli/options/scenario_options.h"
#include "cli/output/print_json.h"
#include "cli/output/terminal.h"
#include "report/report.h"
#include "report/table.h"
#include "scenario/figures/simulated_json.h"
#include "scenario/price/params.h"
#include "scenario/price/unused_fields.h"

namespace penstock {
namespace {

constexpr int kRanks = 8, kMicrobatches = 32;  // of the figures

constexpr int kPictureRanks = 4, kPictureRows = 8;  // of the pictures

constexpr int kPictureWidth = 960;  // pixels

constexpr const char* kHeading = R"(# Schedules

*What does each schedule look like, when do I use it, and what does it cost?*

The program writes this page and its pictures; run it again after you change a schedule:

    penstock schedules --docs docs

**Terms.** p ranks, v chunks (stages per rank), m microbatches, r a rank. F, I, W and B = I + W are the times of one rank's
share of one microbatch; peak memory is in its activations. The [glossary](glossary.md) defines the other terms.

**Placements**, with the messages of a batch. *linear*: stage s on rank s, 2(p-1)m messages. *looped*: stage s on rank s mod p, 2(pv-1)m.
*vee*: two chunks, down the ranks and up again, 4(p-1)m; a *zigzag* has v of them, 2v(p-1)m. *bidirectional*: two chains in opposite
directions over two replicas of the weights, 2(p-1)m. With k sequence slices there are k times as many, each 1/k as large.

**Pictures** are at {} ranks with F = I = W; a block's number is its microbatch, and later stages of a rank (chunks or replicas) are lighter.
**Figures** are simulated at p = {}, m = {} with F = I = W and transfers that take no time; a pair of
a forward and a backward takes the longer of the two times (`--overlap max`), or their sum (`--overlap sum`). For your own:
`penstock simulate --schedule NAME,NAME --ranks P --microbatches M --cost F,I,W --comm T`.
A schedule whose table has no row "takes" takes any ranks and microbatches.
)";

// Options that give a row of figures in the section of an algorithm that reads them.
struct Variant {
  std::string label;
  Scenario options;
};

Scenario FigureOptions() {
  Scenario options;
  options.ranks = kRanks;
  options.microbatches = kMicrobatches;
  return options;
}

std::vector<Variant> VariantsOf(const SupportedParameters& supported) {
  std::vector<Variant> variants;
  const auto add = [&](const std::string& label) -> Scenario& {
    variants.push_back({"`" + label + "`", FigureOptions()});
    return variants.back().options;
  };
  if (supported.waves) {
    add("--waves 2").waves = 2;
    add("--waves 4").waves = 4;
  } else if (supported.max_chunks > supported.min_chunks && !supported.slices) {
    add("--chunks 4").chunks = 4;
  }
  if (supported.group) {
    Scenario& half = add(fmt::format("--chunks 4 --group {}", kRanks / 2));
    half.chunks = 4;
    half.group = kRanks / 2;
  }
  if (supported.slices) add("--slices 4").slices = 4;
  if (supported.split) add("--split").split = true;
  if (supported.slices && supported.split) {
    Scenario& both = add("--slices 4 --split");
    both.slices = 4;
    both.split = true;
  }
  if (supported.memory_limit && !supported.waves) {
    add(fmt::format("--memory-limit {}", kRanks)).memory_limit = fmt::format("{}", kRanks);
    add(fmt::format("--memory-limit {}", kRanks / 2)).memory_limit = fmt::format("{}", kRanks / 2);
  }
  if (supported.steps) add("--steps 4").steps = 4;
  return variants;
}

Result<Simulated> PriceExample(const Algorithm& algorithm, const Scenario& options,
                               bool with_timeline) {
  PENSTOCK_TRY(PricedSchedule chosen, Choose(options, algorithm, Given::kAll));
  PENSTOCK_TRY_STATUS(MakeSchedule(options, chosen));
  return SimulateOne(std::move(chosen), with_timeline);
}

// As Markdown; one cell a column.
std::string Row(const std::vector<std::string>& cells) {
  return fmt::format("| {} |\n", fmt::join(cells, " | "));
}

std::vector<std::string> Figures(const SimulationResult& result) {
  return {FormatNumber(result.makespan), FormatPercent(result.bubble),
          FormatPercent(result.span_bubble), FormatNumber(result.peak_memory),
          fmt::format("{}", result.messages)};
}

const std::vector<std::string> kFigureNames = {"makespan", "bubble", "span bubble", "peak memory",
                                               "messages"};

std::string FigureTable(const std::string& first,
                        const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::string> names = {first};
  names.insert(names.end(), kFigureNames.begin(), kFigureNames.end());
  std::vector<std::string> rule(names.size(), "---:");
  rule.front() = "---";
  std::string text = Row(names) + Row(rule);
  for (const auto& row : rows) text += Row(row);
  return text;
}

// The rows of a simulated schedule: one, or one per price of overlapped pairs.
void AddRows(const Simulated& simulated, const std::string& label,
             std::vector<std::vector<std::string>>& rows) {
  const auto add = [&](const std::string& name, const SimulationResult& result) {
    rows.push_back({name});
    for (std::string& figure : Figures(result)) rows.back().push_back(std::move(figure));
  };
  if (!simulated.overlap_sum) {
    add(label, simulated.result);
    return;
  }
  add(label + " `--overlap max`", simulated.result);
  add(label + " `--overlap sum`", *simulated.overlap_sum);
}

// Returns no table for an algorithm without variants; Overview has the row of its defaults.
Result<std::string> FiguresOf(const Algorithm& algorithm) {
  std::vector<std::vector<std::string>> rows;
  for (const Variant& variant : VariantsOf(algorithm.supported)) {
    PENSTOCK_TRY(const Simulated simulated, PriceExample(algorithm, variant.options, false));
    AddRows(simulated, variant.label, rows);
  }
  if (rows.empty()) return std::string();
  return "\n" + FigureTable("with", rows);
}

Result<std::string> Picture(const Algorithm& algorithm) {
  Scenario options;
  options.ranks = kPictureRanks;
  options.microbatches = kPictureRows;
  std::string label = std::string(algorithm.name);
  // Differs from 1f1b only with at least two slices or two steps.
  if (algorithm.supported.slices) {
    options.slices = 2;
    options.microbatches = kPictureRows / 2;
    label += " --slices 2";
  }
  if (algorithm.supported.steps) {
    options.steps = 2;
    options.microbatches = kPictureRows / 2;
    label += " --steps 2";
  }
  PENSTOCK_TRY(const Simulated simulated, PriceExample(algorithm, options, true));
  ReportInput input;
  input.width = kPictureWidth;
  input.schedule = &simulated.chosen.schedule;
  input.runs.push_back(
      {fmt::format("{} --ranks {} --microbatches {}", label, kPictureRanks, *options.microbatches),
       &simulated.timeline,
       simulated.result,
       {},
       nullptr});
  return RenderSvg(input);
}

Result<std::string> Section(const Algorithm& algorithm) {
  std::string names;
  for (const std::string_view alias : algorithm.aliases) {
    names += fmt::format("{}`{}`", names.empty() ? "" : ", ", alias);
  }
  std::vector<std::string> options;
  for (const std::string& name : OptionNames(algorithm.supported))
    options.push_back("`" + name + "`");
  PENSTOCK_TRY(const std::string figures, FiguresOf(algorithm));
  std::string summary(algorithm.summary);
  summary.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(summary.front())));
  std::string text = fmt::format("\n## {0}\n\n{1}.\n\n![{0} on {2} ranks](pictures/{0}.svg)\n\n",
                                 algorithm.name, summary, kPictureRanks);
  text += fmt::format("**When to use it.** {}\n\n| | |\n| --- | --- |\n", algorithm.when);
  if (!names.empty()) text += Row({"also called", names});
  text += Row({"placement", fmt::format("{}, chunks {}", ToText(algorithm.placement),
                                        ChunksText(algorithm.supported))});
  if (!algorithm.constraint.empty()) text += Row({"takes", ConstraintText(algorithm)});
  if (!options.empty()) text += Row({"options", fmt::format("{}", fmt::join(options, ", "))});
  text += Row({"makespan", std::string(algorithm.makespan)});
  text += Row({"peak memory", std::string(algorithm.memory)});
  text += Row({"source", std::string(algorithm.source)});
  return text + figures;
}

Result<std::string> Overview() {
  std::vector<std::vector<std::string>> rows;
  for (const Algorithm& algorithm : Catalog()) {
    PENSTOCK_TRY(const Simulated simulated, PriceExample(algorithm, FigureOptions(), false));
    AddRows(simulated, fmt::format("[{0}](#{0})", algorithm.name), rows);
  }
  return "\n" + FigureTable("schedule", rows);
}

// Writes FOLDER/schedules.md, and FOLDER/pictures/NAME.svg for every algorithm of the catalog. The
// output is deterministic.
// Errors: kInvalidArgument if the folder does not exist.
Status WriteScheduleDocs(const std::string& folder) {
  const std::filesystem::path pictures = std::filesystem::path(folder) / "pictures";
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return InvalidArgument("--docs {}: there is no such folder", folder);
  }
  PENSTOCK_TRY_STATUS(CreateFolders(pictures.string()));
  std::string page = fmt::format(fmt::runtime(kHeading), kPictureRanks, kRanks, kMicrobatches);
  PENSTOCK_TRY(const std::string overview, Overview());
  page += overview;
  for (const Algorithm& algorithm : Catalog()) {
    PENSTOCK_TRY(const std::string section, Section(algorithm));
    page += section;
    PENSTOCK_TRY(const std::string picture, Picture(algorithm));
    PENSTOCK_TRY_STATUS(
        WriteFileAtomically((pictures / fmt::format("{}.svg", algorithm.name)).string(), picture));
  }
  return WriteFileAtomically((std::filesystem::path(folder) / "schedules.md").string(), page);
}

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
    fmt::print("{}", format == OutputFormat::kCsv ? FormatTableCsv(table) : TableText(table));
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
