// penstock watch: follows a training run by reading the files in its folder.
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/text/quote.h"
#include "cli/command/command.h"
#include "cli/help/offered_values.h"
#include "cli/options/option_values.h"
#include "cli/signals/interrupt.h"
#include "monitor/run_names.h"
#include "monitor/run_watcher.h"
#include "monitor/status_page.h"
#include "monitor/status_text.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr double kTerminalInterval = 1;  // seconds between two readings of the files
constexpr double kPlainInterval = 5;
constexpr double kLeastInterval = 0.01;
constexpr double kMostInterval = 3600;

ordered_json RanksJson(const RunStatus& status) {
  ordered_json ranks = ordered_json::array();
  for (const RankMetric& rank : status.ranks) {
    ranks.push_back({{"busy", rank.busy},
                     {"bubble", rank.bubble},
                     {"peak_activation_bytes", rank.peak_activation_bytes}});
  }
  return ranks;
}

ordered_json StragglersJson(const RunStatus& status) {
  ordered_json stragglers = ordered_json::array();
  for (const Straggler& straggler : status.stragglers) {
    stragglers.push_back({{"rank", straggler.rank},
                          {"factor", straggler.factor},
                          {"than", straggler.than_peers ? "peers" : "before"}});
  }
  return stragglers;
}

ordered_json JsonOf(const RunStatus& status) {
  const auto number = [](const std::optional<double>& value) {
    return value ? ordered_json(*value) : ordered_json();
  };
  return {{"folder", status.folder},
          {"name", status.run.name},
          {"state", StateName(status.state)},
          {"step", status.done},
          {"steps", status.run.steps},
          {"loss", number(status.loss)},
          {"earlier_loss", number(status.earlier_loss)},
          {"lr", status.lr},
          {"grad_norm", status.grad_norm},
          {"clipped", status.clipped},
          {"skipped", status.skipped},
          {"tokens_per_second", status.tokens_per_second},
          {"step_time", status.step_seconds},
          {"bubble", status.bubble},
          {"seconds", status.seconds},
          {"seconds_left", number(status.seconds_left)},
          {"age", number(status.age)},
          {"stalled", status.stalled},
          {"stragglers", StragglersJson(status)},
          {"per_rank", RanksJson(status)},
          {"units",
           {{"loss", "nats per token"},
            {"earlier_loss", "nats per token"},
            {"step_time", "s"},
            {"age", "s"},
            {"busy", "s"}}}};
}

// Draws the status over the previous one, without flicker.
class TerminalPicture {
 public:
  void Draw(const RunStatus& status) {
    winsize size{};
    TextSize text_size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
      // One line stays free for the cursor.
      text_size = {size.ws_col, std::max(1, size.ws_row - 1)};
    }
    std::string text = StatusText(status, text_size);
    const auto lines = std::count(text.begin(), text.end(), '\n');
    for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 4) {
      text.insert(at, "\x1b[K");  // erases what the previous picture has to the right
    }
    const std::string up = drawn_ > 0 ? fmt::format("\x1b[{}A", drawn_) : "";
    Log(stdout, "{}\r{}\x1b[J", up, text);
    std::fflush(stdout);
    drawn_ = lines;
  }

 private:
  std::ptrdiff_t drawn_ = 0;  // lines
};

class WatchCommand final : public Command {
 public:
  std::string Name() const override { return "watch"; }
  std::string Summary() const override {
    return "Follow a training run from any terminal: loss, speed, ranks, time left";
  }

  void Define(CLI::App& app) override {
    Offer(app.add_option("RUN", run_, "The folder of a run, or the name of one under runs/"), [] {
      return OfferedRuns(OfferedPaths::kFolders);
    })->required();
    app.add_flag("--once", once_, "Print the present status and exit");
    AddNumber(app, "--interval", interval_,
              "Seconds between two readings of the files (default: 1 on a terminal, otherwise 5)");
    AddText(app, "--page", page_, "Also write the status as a page, which reloads itself")
        ->type_name("FILE.html");
    app.add_flag("--json", json_, "Print the present status as one JSON object and exit");
    app.footer(
        "Reads only files, so it works on any machine that sees the folder, and before, during and "
        "after the run. Waits for a run that has not started, unless its name is close to another "
        "run's; then give its folder. Ends when all steps are done; Ctrl-C ends it earlier. "
        "Figures are over the "
        "last 20 steps. A straggler is a rank that takes more than 1.25 times as long as the "
        "median of the ranks with the same layers, or, relative to the other ranks, as in its "
        "earlier steps.");
  }

  std::string ExitCodes() const override {
    return "0 success, also after Ctrl-C; 1 the page cannot be written; 2 bad usage or input";
  }

  Result<int> Run() override {
    if (interval_ && (*interval_ < kLeastInterval || *interval_ > kMostInterval)) {
      return InvalidArgument("--interval: {} is not between {} and {} seconds", *interval_,
                             kLeastInterval, kMostInterval);
    }
    const std::atomic<bool>& stop = CatchInterrupt();
    RunWatcher watcher(run_);
    if (once_ || json_) return PrintOnce(watcher);
    terminal_ = isatty(STDOUT_FILENO) == 1;
    PENSTOCK_TRY_STATUS(CheckMissing());
    while (!stop) {
      PENSTOCK_TRY(const RunStatus status, watcher.Read());
      PENSTOCK_TRY_STATUS(Show(status));
      if (status.state == RunState::kFinished) break;
      // A signal ends the wait.
      poll(nullptr, 0, static_cast<int>(std::ceil(Interval() * 1e3)));
    }
    return kExitOk;
  }

 private:
  double Interval() const {
    return interval_.value_or(terminal_ ? kTerminalInterval : kPlainInterval);
  }

  // Waits for a run that has not started yet, unless its name is close to another run's.
  Status CheckMissing() const {
    std::error_code error;
    const std::string folder = FolderOfRun(run_);
    if (fs::is_directory(folder, error)) return {};
    const std::string similar = SimilarRun(run_);
    if (!similar.empty()) {
      return NotFound("there is no run {}{} To wait for a new run, give its folder, {}",
                      Quote(run_), similar, Printable(folder));
    }
    Log(stderr, "penstock: there is no run {} yet; waits for {}\n", Quote(run_), Printable(folder));
    return {};
  }

  Result<int> PrintOnce(RunWatcher& watcher) {
    PENSTOCK_TRY(const RunStatus status, watcher.Read());
    std::error_code error;
    if (status.state == RunState::kWaiting && !fs::is_directory(status.folder, error)) {
      return NotFound("there is no run {}{}: give its folder, or its name under runs/", Quote(run_),
                      SimilarRun(run_));
    }
    if (page_) PENSTOCK_TRY_STATUS(WriteStatusPage(status, Interval(), *page_));
    if (json_) {
      Log(stdout, "{}\n",
          JsonOf(status).dump(2, ' ', false, ordered_json::error_handler_t::replace));
    } else {
      Log(stdout, "{}", StatusText(status, {}));
    }
    return kExitOk;
  }

  Status Show(const RunStatus& status) {
    if (page_) PENSTOCK_TRY_STATUS(WriteStatusPage(status, Interval(), *page_));
    if (terminal_) {
      picture_.Draw(status);
    } else if (!shown_ || shown_->done != status.done || shown_->state != status.state ||
               shown_->stalled != status.stalled) {
      Log(stdout, "{}\n", StatusLine(status));
      std::fflush(stdout);
      shown_ = {status.done, status.state, status.stalled};
    }
    return {};
  }

  // What the last line was about. Its ages alone are no reason for another line.
  struct Shown {
    std::int64_t done;
    RunState state;
    bool stalled;
  };

  std::string run_;
  bool once_ = false;
  bool json_ = false;
  std::optional<double> interval_;
  std::optional<std::string> page_;
  bool terminal_ = false;
  TerminalPicture picture_;
  std::optional<Shown> shown_;
};

}  // namespace

std::unique_ptr<Command> MakeWatchCommand() { return std::make_unique<WatchCommand>(); }

}  // namespace penstock
