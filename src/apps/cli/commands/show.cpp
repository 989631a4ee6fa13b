// penstock show: draws schedules in the terminal.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "cli/command/command.h"
#include "cli/figures/comparison.h"
#include "cli/help/offered_values.h"
#include "cli/options/option_values.h"
#include "cli/options/scenario_options.h"
#include "cli/output/print_json.h"
#include "cli/output/terminal.h"
#include "report/table.h"
#include "report/terminal.h"
#include "report/terminal_colors.h"
#include "scenario/figures/simulated_json.h"

namespace penstock {
namespace {

// The colors of that terminal, by COLORTERM.
ColorDepth TerminalDepth() {
  const char* const depth = std::getenv("COLORTERM");
  const std::string_view text = depth == nullptr ? "" : depth;
  return text == "truecolor" || text == "24bit" ? ColorDepth::kTrue : ColorDepth::k256;
}

// Whether the locale's character set is UTF-8.
bool OutputHasUnicode() {
  for (const char* const name : {"LC_ALL", "LC_CTYPE", "LANG"}) {  // the first one that is set
    const char* const value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string text = value;
    std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text.find("utf-8") != std::string::npos || text.find("utf8") != std::string::npos;
  }
  return false;
}

constexpr std::array<std::string_view, 3> kColorNames = {"auto", "always", "never"};
constexpr int kLeastWidth = 20;
constexpr int kMostWidth = 10000;

// Columns of the terminal; 100 if the output is not a terminal.
int TerminalWidth() {
  constexpr int kDefault = 100;
  const std::size_t columns = OutputColumns();
  return columns > 0 ? static_cast<int>(columns) : kDefault;
}

class ShowCommand : public Command {
 public:
  std::string Name() const override { return "show"; }
  std::string Summary() const override { return "Draw schedules in the terminal"; }
  void Define(CLI::App& app) override {
    options_.DefineSchedules(app);
    app.option_defaults()->group("Output");
    AddInt(app, "--width", width_, "Columns of the picture (default: the terminal's)",
           {kLeastWidth, kMostWidth});
    Offer(
        AddText(app, "--color", color_, "When to use colors: auto, always or never (default auto)")
            ->type_name("WHEN"),
        {kColorNames.begin(), kColorNames.end()});
    app.add_flag("--memory", memory_, "Draw the memory of each rank below its actions");
    app.add_flag("--explain", explain_,
                 "Mark the causes of bubbles, and the critical path below its actions");
    app.add_flag("--json", json_, "Print every action with its start and end instead of drawing");
  }

  Result<int> Run() override {
    const std::pair<const char*, bool> drawing[] = {{"--width", width_.has_value()},
                                                    {"--color", color_.has_value()},
                                                    {"--memory", memory_},
                                                    {"--explain", explain_}};
    for (const auto& [option, given] : drawing) {
      if (!json_ || !given) continue;
      return InvalidArgument("{} has no effect here: --json draws nothing; leave it out", option);
    }
    if (color_ && std::ranges::find(kColorNames, *color_) == kColorNames.end()) {
      return InvalidArgument("--color {}: give auto, always or never{}", Quote(*color_),
                             Suggestion(*color_, {kColorNames.begin(), kColorNames.end()}));
    }
    PENSTOCK_TRY(std::vector<Simulated> all, options_.Simulate());
    all = WithMeasured(std::move(all));
    if (json_) {
      PrintObject({{"schedules", SchedulesJson(all, true)}});
      return kExitOk;
    }
    const std::string color_wish = color_.value_or("auto");
    const bool color = color_wish == "always" || (color_wish == "auto" && OutputHasColor());
    const TerminalStyle style{width_ ? *width_ : TerminalWidth(),
                              color ? TerminalDepth() : ColorDepth::kNone,
                              color && OutputHasUnicode()};
    if (explain_) fmt::print("{}", ConclusionsText(options_.scenario, all));
    for (const Simulated& simulated : all) {
      const SimulationResult& result = simulated.result;
      PENSTOCK_TRY(const std::string picture,
                   RenderTerminal(simulated.chosen.schedule, simulated.timeline, style,
                                  DetailsOf(simulated)));
      fmt::print("{}{}: {}; makespan {}, bubble {}, peak memory {}{}\n{}",
                 &simulated == all.data() ? "" : "\n", simulated.chosen.label,
                 ShapeText(simulated.chosen.schedule),
                 FormatAmount(result.makespan, simulated.chosen.time_unit),
                 FormatPercent(result.bubble),
                 FormatAmount(result.peak_memory, simulated.chosen.memory_unit),
                 simulated.above_limit ? ", above the limit" : "", picture);
    }
    return kExitOk;
  }

 private:
  TerminalDetails DetailsOf(const Simulated& simulated) const {
    const PricedSchedule& chosen = simulated.chosen;
    TerminalDetails details;
    details.memory_unit = chosen.memory_unit;
    if (memory_) {
      details.memory = MemoryOverTime(chosen.schedule, simulated.timeline, chosen.costs);
    }
    if (explain_) {
      Explanation explanation = ExplanationOf(simulated);
      details.bubbles = std::move(explanation.bubbles);
      details.critical_path = std::move(explanation.critical_path);
    }
    return details;
  }

  ScenarioOptions options_;
  bool json_ = false;
  std::optional<int> width_;
  std::optional<std::string> color_;
  bool memory_ = false, explain_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeShowCommand() { return std::make_unique<ShowCommand>(); }

}  // namespace penstock
