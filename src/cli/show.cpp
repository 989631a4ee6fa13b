// penstock show: draws schedules in the terminal.
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "cli/command.h"
#include "cli/simulated.h"
#include "report/table.h"
#include "report/terminal.h"

namespace penstock {
namespace {

constexpr int kLeastWidth = 20;
constexpr int kMostWidth = 10000;

// Columns of the terminal; 100 where the output is none.
int TerminalWidth() {
  constexpr int kDefault = 100;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return kDefault;
}

// Whether colours would be understood: a terminal that is not dumb, and no wish against them
// (no-color.org).
bool TerminalHasColor() {
  const char* const refused = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && (refused == nullptr || *refused == '\0') &&
         terminal != nullptr && std::string_view(terminal) != "dumb";
}

class ShowCommand : public Command {
 public:
  std::string Name() const override { return "show"; }
  std::string Summary() const override { return "Draw schedules in the terminal"; }
  void Define(CLI::App& app) override {
    options_.DefineSource(app);
    options_.DefineShape(app);
    options_.DefineCosts(app);
    options_.passes.Define(app);
    app.add_option("--width", width_, "Columns to draw in (default: the terminal's)")
        ->check(CLI::Range(kLeastWidth, kMostWidth));
    app.add_option("--color", color_, "Colours: auto, always or never")
        ->check(CLI::IsMember({"auto", "always", "never"}));
    app.add_flag("--json", options_.json, "Print every action with its start and end instead");
  }

  Result<int> Run() override {
    PENSTOCK_TRY(const std::vector<Simulated> all, SimulateChosen(options_));
    if (options_.json) {
      nlohmann::ordered_json array = nlohmann::ordered_json::array();
      for (const Simulated& simulated : all) array.push_back(ToJson(simulated, true));
      fmt::print("{}\n", array.dump(2));
      return kExitOk;
    }
    const TerminalStyle style{width_ > 0 ? width_ : TerminalWidth(),
                              color_ == "always" || (color_ == "auto" && TerminalHasColor())};
    for (const Simulated& simulated : all) {
      const SimulationResult& result = simulated.result;
      PENSTOCK_TRY(const std::string picture,
                   RenderTerminal(simulated.chosen.schedule, simulated.timeline, style));
      fmt::print("{}{}: {}; makespan {}, bubble {}, peak memory {}\n{}",
                 &simulated == all.data() ? "" : "\n", simulated.chosen.label,
                 ShapeText(simulated.chosen.schedule), FormatNumber(result.makespan),
                 FormatPercent(result.bubble),
                 FormatAmount(result.peak_memory, simulated.chosen.memory_unit), picture);
    }
    return kExitOk;
  }

 private:
  ScheduleOptions options_;
  int width_ = 0;
  std::string color_ = "auto";
};

}  // namespace

std::unique_ptr<Command> MakeShowCommand() { return std::make_unique<ShowCommand>(); }

}  // namespace penstock
