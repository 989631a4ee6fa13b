#include "cli/commands/schedule_docs.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <vector>

#include "base/files.h"
#include "base/folders.h"
#include "cli/commands/algorithm_text.h"
#include "report/report.h"
#include "scenario/figures/simulated_json.h"

namespace penstock {
namespace {

constexpr int kRanks = 8, kMicrobatches = 32;       // of the figures
constexpr int kPictureRanks = 4, kPictureRows = 8;  // of the pictures
constexpr int kPictureWidth = 960;                  // pixels
constexpr const char* kHeading = R"(# Schedules

Every schedule that Penstock generates: what it looks like, when to use it and what it costs. The program writes this page
and its pictures; run it again after you change a schedule:

    penstock schedules --docs docs

**Terms.** p ranks, v chunks (stages per rank), m microbatches, r a rank. F, I and W are the times of one
rank's share of one microbatch: forward, backward for the input, backward for the weights. B = I + W is
the whole backward. The *bubble* is the share of the makespan in which the busiest rank is idle. The *span bubble*
leaves out the time before a rank's first action and after its last one, which the next step fills where there is no
flush. *Peak memory* is the worst rank's, in activations of one rank's share of one microbatch. *Messages* counts
the whole batch in both directions. More in the [glossary](glossary.md).

**Placements.** *linear*: stage s on rank s. *looped*: stage s on rank s mod p. *vee*: two chunks, down the ranks and up
again; a *zigzag* has more of them. *bidirectional*: two chains in opposite directions over two replicas of the weights.

**Pictures** are at {} ranks with F = I = W; a block's number is its microbatch, and later stages of a rank (chunks or replicas) are lighter.
**Figures** are at p = {}, m = {} with F = I = W and transfers that take no time, as the simulator finds them; a pair of
a forward and a backward takes the longer of the two times (`--overlap max`), or their sum (`--overlap sum`). For your own:
`penstock simulate --schedule NAME,NAME --ranks P --microbatches M --cost F,I,W --comm T`.
)";

// Options that give one more row of figures, for an algorithm that reads them.
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
  std::vector<Variant> variants = {{"default", FigureOptions()}};
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

std::string FigureTable(const std::string& first, bool left,
                        const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::string> names = {first};
  names.insert(names.end(), kFigureNames.begin(), kFigureNames.end());
  std::vector<std::string> rule(names.size(), "---:");
  if (left) rule.front() = "---";
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

Result<std::string> FiguresOf(const Algorithm& algorithm) {
  std::vector<std::vector<std::string>> rows;
  for (const Variant& variant : VariantsOf(algorithm.supported)) {
    PENSTOCK_TRY(const Simulated simulated, PriceExample(algorithm, variant.options, false));
    AddRows(simulated, variant.label, rows);
  }
  return FigureTable(fmt::format("p = {}, m = {}", kRanks, kMicrobatches), true, rows);
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
  text += Row({"takes", ConstraintText(algorithm)});
  if (!options.empty()) text += Row({"options", fmt::format("{}", fmt::join(options, ", "))});
  text += Row({"makespan", std::string(algorithm.makespan)});
  text += Row({"peak memory", std::string(algorithm.memory)});
  text += Row({"messages", MessagesText(algorithm)});
  text += Row({"source", std::string(algorithm.source)});
  return text + "\n" + figures;
}

Result<std::string> Overview() {
  std::vector<std::vector<std::string>> rows;
  for (const Algorithm& algorithm : Catalog()) {
    PENSTOCK_TRY(const Simulated simulated, PriceExample(algorithm, FigureOptions(), false));
    AddRows(simulated, fmt::format("[{0}](#{0})", algorithm.name), rows);
  }
  return "\n" + FigureTable("schedule", true, rows);
}

}  // namespace

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

}  // namespace penstock
