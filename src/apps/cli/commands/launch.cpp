// penstock launch: runs a training job, and starts it again if it fails.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "base/text/yaml_map.h"
#include "base/units.h"
#include "checkpoint/checkpoint_folder.h"
#include "cli/command/command.h"
#include "cli/commands/launched_job.h"
#include "cli/options/option_values.h"
#include "monitor/metrics.h"

namespace penstock {
namespace {

using Arguments = std::vector<std::string>;

bool IsTrain(const Arguments& command, std::size_t at) {
  return at > 0 && command[at] == "train" &&
         std::filesystem::path(command[at - 1]).filename().string().starts_with("penstock");
}

// Returns the index of the first word after 'penstock train', or the number of words.
std::size_t FindTrain(const Arguments& command) {
  for (std::size_t i = 1; i < command.size(); ++i) {
    if (IsTrain(command, i)) return i + 1;
  }
  return command.size();
}

// Returns the value if the word at `at` gives the key: KEY=VALUE, --KEY=VALUE, or --KEY VALUE.
std::optional<std::string> ValueOf(std::string_view key, const Arguments& command, std::size_t at) {
  std::string_view word = command[at];
  const bool is_option = word.starts_with("--");
  if (is_option) word.remove_prefix(2);
  if (is_option && word == key && at + 1 < command.size()) return command[at + 1];
  if (!word.starts_with(key) || !word.substr(key.size()).starts_with('=')) return std::nullopt;
  return std::string(word.substr(key.size() + 1));
}

// Replaces `value` by the configuration's, if it has one. Returns false if it is not valid.
bool ReadKey(const YamlMap& config, const char* key, std::string& value) {
  const auto text = config.Text(key);
  if (!text) return false;
  if (*text) value = **text;
  return true;
}

bool ReadConfig(const std::string& path, std::string& folder, std::string& name) {
  const auto node = LoadYaml(path);
  if (!node) return false;
  const auto config = YamlMap::Of(*node, "the configuration");
  return config && ReadKey(*config, "folder", folder) && ReadKey(*config, "name", name);
}

// Returns the command with '--resume auto' after each 'penstock train'. Returns it unchanged if it
// already says what to resume from.
Arguments WithResume(const Arguments& command) {
  for (std::size_t i = FindTrain(command); i < command.size(); ++i) {
    if (ValueOf("resume", command, i)) return command;
  }
  Arguments resuming;
  for (std::size_t i = 0; i < command.size(); ++i) {
    resuming.push_back(command[i]);
    if (IsTrain(command, i)) resuming.insert(resuming.end(), {"--resume", "auto"});
  }
  return resuming;
}

// Returns the folder of the run, from the configuration and the words after 'penstock train'.
// Nothing if there is no 'penstock train', or its configuration cannot be read.
std::optional<std::string> RunOf(const Arguments& command) {
  const std::size_t begin = FindTrain(command);
  std::string folder = "runs", name = "run";  // the defaults of TrainConfig
  bool has_config = false;
  for (std::size_t i = begin; i < command.size() && !has_config; ++i) {
    const std::string extension = std::filesystem::path(command[i]).extension().string();
    if (command[i].find('=') != std::string::npos) continue;
    if (extension != ".yaml" && extension != ".yml") continue;
    if (!ReadConfig(command[i], folder, name)) return std::nullopt;
    has_config = true;
  }
  if (!has_config) return std::nullopt;
  for (std::size_t i = begin; i < command.size(); ++i) {
    if (const auto given = ValueOf("folder", command, i)) folder = *given;
    if (const auto given = ValueOf("name", command, i)) name = *given;
  }
  return fmt::format("{}/{}", folder, name);
}

constexpr int kMostRestarts = 1'000'000;
constexpr int kFruitlessRuns = 2;                     // in a row, after which a job is given up
constexpr std::chrono::milliseconds kPauseTime{500};  // before a restart

// Returns the steps that a run has done; 0 if it does not exist.
std::int64_t StepsOf(const std::string& run) {
  const auto metrics =
      ReadMetrics(run + "/metrics.jsonl", std::numeric_limits<std::int64_t>::max());
  return metrics.empty() ? 0 : metrics.back().step + 1;
}

// Returns the step of the run's newest complete checkpoint; 0 if it has none.
std::int64_t SavedStepsOf(const std::string& run) {
  const auto stored = ListCheckpoints(CheckpointFolder(run));
  return stored && !stored->empty() ? stored->front().step : 0;
}

// Lets Open MPI's mpirun notice within 24 to 34 s that it has lost a machine, after the processes
// of the run, which need 20 s. Its own default is eight minutes. Variables that are set remain.
void ShortenKeepalive() {
  setenv("OMPI_MCA_oob_tcp_keepalive_time", "10", 0);
  setenv("OMPI_MCA_oob_tcp_keepalive_intvl", "4", 0);
  setenv("OMPI_MCA_oob_tcp_keepalive_probes", "6", 0);
}

std::string TextOf(const JobEnd& end) {
  const std::string how =
      end.code > kExitSignal && end.code < kExitSignal + NSIG
          ? fmt::format("the job was killed by signal {}", end.code - kExitSignal)
          : fmt::format("the job failed with exit code {}", end.code);
  return fmt::format("{} after {}", how, FormatSeconds(end.seconds));
}

class LaunchCommand final : public Command {
 public:
  std::string Name() const override { return "launch"; }
  std::string Summary() const override {
    return "Run a training job, and start it again from its newest checkpoint if it fails";
  }
  std::string Operands() const override { return "-- COMMAND..."; }

  void Define(CLI::App& app) override {
    app_ = &app;
    AddInt(app, "--restarts", restarts_, "Start the job again at most this often (default 0)",
           {0, kMostRestarts});
    AddText(app, "--run", run_,
            "The run's folder, if COMMAND does not name it as 'penstock train' does")
        ->type_name("DIR");
    app.prefix_command();
    app.footer(
        "Example: penstock launch --restarts 10 -- mpirun -n 4 penstock train run.yaml "
        "checkpoint.every=100. COMMAND may be any program. A job that is started again gets the "
        "same words, with '--resume auto' after each 'penstock train' unless they say what to "
        "resume from. A job is not started again after a success, after exit code 2 (bad usage or "
        "input) of its first run, or after a stop by SIGINT or SIGTERM. These signals, SIGHUP and "
        "SIGUSR1 are passed on to the job. A first stop becomes SIGUSR2 for Open MPI's mpirun, "
        "which otherwise leaves its processes no time to write a checkpoint. The job is given up "
        "early if two runs in a row end without a new step. What is left of a failed job's "
        "processes on this machine is killed.");
  }

  std::string ExitCodes() const override {
    return "0 success; 1 the job failed; 2 bad usage or input; 130 stopped by SIGINT; 143 stopped "
           "by SIGTERM; otherwise the exit status of the last run of COMMAND";
  }

  Result<int> Run() override {
    PENSTOCK_TRY(std::vector<std::string> command, TakeCommand());
    if (!run_) run_ = RunOf(command);
    ShortenKeepalive();
    JobRunner runner;
    for (int restart = 0;; ++restart) {
      PENSTOCK_TRY(const JobEnd end, runner.Run(command));
      if (end.code == kExitOk) return kExitOk;
      if (IsStop(end)) return end.stopped != 0 ? kExitSignal + end.stopped : end.code;
      if (restart == 0 && end.code == kExitUsage) return end.code;
      CountProgress();
      if (!MayRestart(end, restart)) return end.code;
      if (const int signal = runner.Pause(kPauseTime)) return kExitSignal + signal;
      command = WithResume(command);
    }
  }

 private:
  Result<std::vector<std::string>> TakeCommand() const {
    std::vector<std::string> words = app_->remaining();
    if (!words.empty() && words.front() != "--") {
      if (words.front().starts_with('-')) {
        return InvalidArgument("there is no option {}{} (see 'penstock launch --help')",
                               Quote(words.front()),
                               Suggestion(words.front(), {"--restarts", "--run", "--help"}));
      }
      return InvalidArgument("write -- before the command: penstock launch -- {} ...",
                             Printable(words.front()));
    }
    if (words.size() < 2) {
      return InvalidArgument(
          "a command is missing: penstock launch --restarts 3 -- mpirun -n 2 penstock train ...");
    }
    words.erase(words.begin());
    return words;
  }

  // Returns whether somebody stopped the job, here or on another machine.
  static bool IsStop(const JobEnd& end) {
    constexpr std::array kStops = {SIGINT, SIGTERM, SIGUSR2};
    return end.stopped != 0 || std::ranges::find(kStops, end.code - kExitSignal) != kStops.end();
  }

  // A run that nothing is known about counts as progress.
  void CountProgress() {
    if (!run_) return;
    const std::int64_t steps = StepsOf(*run_);
    fruitless_ = steps > steps_ ? 0 : fruitless_ + 1;
    steps_ = std::max(steps_, steps);
  }

  // Prints what follows a failure. Returns whether the job is to be started again.
  bool MayRestart(const JobEnd& end, int done) const {
    const int most = restarts_.value_or(0);
    if (most == 0) return false;  // the job has printed its error
    std::string next = fmt::format("restart {} of {}{}", done + 1, most, FromText());
    const bool gives_up = done >= most || fruitless_ >= kFruitlessRuns;
    if (done >= most) {
      next = fmt::format("it was restarted {} times", most);
    } else if (gives_up) {
      next = fmt::format("no restart, because {} runs in a row ended without a new step",
                         kFruitlessRuns);
    }
    Log(stderr, "penstock: launch: {}; {}\n", TextOf(end), next);
    return !gives_up;
  }

  std::string FromText() const {
    if (!run_) return "";
    const std::int64_t saved = SavedStepsOf(*run_);
    return saved > 0 ? fmt::format(" from step {}", saved) : " from the first step";
  }

  CLI::App* app_ = nullptr;
  std::optional<int> restarts_;
  std::optional<std::string> run_;
  std::int64_t steps_ = 0;  // most that a run has done
  int fruitless_ = 0;       // runs in a row without a new step
};

}  // namespace

std::unique_ptr<Command> MakeLaunchCommand() { return std::make_unique<LaunchCommand>(); }

}  // namespace penstock
