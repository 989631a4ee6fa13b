// penstock train: trains a model over pipeline ranks and writes the run's files to runs/NAME.
#include "train/train.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>

#include "base/log.h"
#include "base/result.h"
#include "base/system/machine_load.h"
#include "base/system/repeated_signal.h"
#include "cli/definitions/definitions.h"
#include "cli/engine/collectives_json.h"
#include "cli/output/print_error.h"
#include "cli/processes/processes.h"

namespace penstock {
namespace {

// The signals of a training run. SIGINT, SIGTERM and SIGUSR2: the first requests a stop, the second
// ends the process; SIGUSR2 is for Open MPI's mpirun, which passes it on at once and without a time
// limit. SIGUSR1 requests the timeline of the current step.
std::atomic<bool> stop_requested{false};
std::atomic<int> stop_signal{0};  // the first one; 0: none came
StopSignals stop_signals;

// Installs the handlers of the others. Returns the flag that the first signal sets.
const std::atomic<bool>& CatchStopSignals() {
  const auto handler = [](int signal) {
    const StopSignal kind = stop_signals.Classify();
    if (kind == StopSignal::kSecond) EndBySignal(signal);
    if (kind != StopSignal::kFirst) return;
    stop_signal = signal;
    stop_requested = true;
    // Programs send SIGTERM, such as mpirun after a failure, whose one line is enough.
    if (signal == SIGTERM) return;
    constexpr std::string_view kNotice =
        "\npenstock: stopping after the current step; a second signal stops at once\n";
    const int error = errno;
    // If this fails, there is nobody to report it to.
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kNotice.data(), kNotice.size());
    errno = error;
  };
  std::signal(SIGINT, handler);
  std::signal(SIGTERM, handler);
  std::signal(SIGUSR2, handler);
  return stop_requested;
}

std::atomic<bool> trace_requested{false};

// Installs the handler of SIGUSR1. Returns the flag that the signal sets.
std::atomic<bool>& CatchTraceSignal() {
  static_assert(std::atomic<bool>::is_always_lock_free);  // so a handler may set it
  std::signal(SIGUSR1, [](int) { trace_requested = true; });
  return trace_requested;
}

// Returns whether this process prints the error of the run: process 0 does, or process 1 if that
// one is lost. Process 1 may have learned of the end from others before it notices the loss.
bool PrintsError(const ProcessGroup& group) {
  constexpr std::chrono::seconds kLongest{5};
  constexpr std::chrono::milliseconds kPoll{5};
  if (group.process() != 1) return group.process() == 0;
  const auto deadline = std::chrono::steady_clock::now() + kLongest;
  while (group.lost() != 0 && !group.HasLeft(0) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kPoll);
  }
  return group.lost() == 0;
}

// Calls `run` and returns its exit code. On several processes, an error of any process ends the
// command on all of them with the same exit code, and only one of them prints it. Returns after all
// processes have ended the command, so that no launcher ends that process before it has printed the
// error.
Result<int> RunOnProcesses(Processes processes, const std::function<Result<int>()>& run) {
  ProcessGroup* const group = processes.group.get();
  Result<int> code = run();
  if (group == nullptr) return code;
  if (!code) {
    const Error error = code.error();
    group->Abort(error);
    if (PrintsError(*group)) PrintError(error.line());
    code = ExitCodeOf(group->reason());
    // Nothing is left to stop, so a launcher may end this process at once.
    std::signal(SIGTERM, SIG_DFL);
  }
  group->Leave();
  return code;
}

// Per microbatch, by stage and action.
nlohmann::ordered_json CollectivesToJson(const TrainSummary& summary) {
  nlohmann::ordered_json stages = nlohmann::ordered_json::array();
  for (const auto& [stage, counts] : summary.collectives) {
    stages.push_back({{"stage", stage},
                      {"F", ToJson(counts.forward)},
                      {"I", ToJson(counts.backward_input)},
                      {"W", ToJson(counts.backward_weight)}});
  }
  return stages;
}

nlohmann::ordered_json ToJson(const TrainSummary& summary, const std::string& busy) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const RankSummary& rank : summary.per_rank) {
    ranks.push_back({{"busy", rank.busy},
                     {"bubble", rank.bubble},
                     {"peak_activation_bytes", rank.peak_activation_bytes},
                     {"predicted_busy", rank.predicted_busy},
                     {"predicted_bubble", rank.predicted_bubble},
                     {"predicted_peak_activation_bytes", rank.predicted_peak_activation_bytes}});
  }
  return {{"held_out_loss", summary.held_out_loss},
          {"baseline_loss", summary.baseline_loss},
          {"tokens_per_second", summary.tokens_per_second},
          {"step_time", summary.step_time},
          {"predicted_step_time", summary.predicted_step_time},
          {"drift", summary.drift},
          {"busy_machine", busy.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(busy)},
          {"steps", summary.steps},
          {"ranks", summary.ranks},
          {"per_rank", ranks},
          {"collectives", CollectivesToJson(summary)},
          {"passage", summary.passage},
          {"files", summary.files},
          {"units",
           {{"held_out_loss", "nats per " + summary.unit},
            {"baseline_loss", "nats per " + summary.unit},
            {"step_time", "s"},
            {"predicted_step_time", "s"},
            {"busy", "s"},
            {"predicted_busy", "s"}}}};
}

void Print(const TrainSummary& summary, const std::string& busy) {
  Log(stdout, "\nheld-out loss {:.3f} nats per {}", summary.held_out_loss, summary.unit);
  if (summary.baseline_loss > 0) {
    const double below = summary.baseline_loss - summary.held_out_loss;
    Log(stdout, "; a bigram model of the same text {:.3f} ({:.3f} {})", summary.baseline_loss,
        std::abs(below), below < 0 ? "above" : "below");
  }
  Log(stdout,
      "\n\nGenerated text:\n\n{}\n\n{}\nstep time {:.1f} ms, predicted "
      "{:.1f} ms; {:.0f} tokens/s over {} steps\n{}{}{}\n\nfiles:\n",
      summary.passage, summary.table, summary.step_time * 1e3, summary.predicted_step_time * 1e3,
      summary.tokens_per_second, summary.steps, summary.drift, busy.empty() ? "" : "; ", busy);
  for (const std::string& file : summary.files) Log(stdout, "  {}\n", file);
}

// Prints one line on the leader. Returns the exit code of a process that a signal ended.
int ReportStop(const TrainSummary& summary, bool leads) {
  // On several processes, the signal may have reached only another one.
  const int signal = stop_signal != 0 ? stop_signal.load() : SIGTERM;
  if (!leads) return kExitSignal + signal;
  std::string what = fmt::format("after {} of {} steps: resume=auto continues from {}",
                                 summary.steps, summary.planned_steps, summary.saved);
  if (summary.saved.empty()) {
    what = "before it ran a step: nothing was saved";
  } else if (summary.steps == summary.planned_steps) {
    what = fmt::format("after its last step: the weights are in {}, no report was written",
                       summary.saved);
  }
  const char* const name =
      signal == SIGINT ? "SIGINT" : (signal == SIGUSR2 ? "SIGUSR2" : "SIGTERM");
  Log(stderr, "penstock: stopped by {} {}\n", name, what);
  return kExitSignal + signal;
}

class TrainCommand final : public EngineRun<TrainDefinition> {
 public:
  Result<int> Run() override {
    PENSTOCK_TRY(Processes processes, OpenProcesses());
    ProcessGroup* const group = processes.group.get();
    const int cores = processes.cores;
    return RunOnProcesses(std::move(processes), [&] { return TrainOn(group, cores); });
  }

  // Checks this on several processes, too, so that one of them reports the error.
  Result<int> Refuse(Error error) override {
    PENSTOCK_TRY(Processes processes, OpenProcesses());
    return RunOnProcesses(std::move(processes),
                          [&]() -> Result<int> { return tl::unexpected(std::move(error)); });
  }

 private:
  // Trains as one of the processes of the group, which is null if there is only this one.
  Result<int> TrainOn(ProcessGroup* group, int cores) {
    PENSTOCK_TRY(const TrainConfig config, LoadTrainConfig(config_, AllOverrides()));
    const std::atomic<bool>& stop = CatchStopSignals();
    std::signal(SIGPIPE, SIG_IGN);  // training continues when the reader of its progress exits
    std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit of file sizes fails instead
    TrainOptions options;
    options.log = json_ ? stderr : stdout;
    options.stop = &stop;
    options.trace_request = &CatchTraceSignal();
    options.on_stuck = [](const Error& reason) {
      fmt::print(stderr, "penstock: error: {}\n", reason.line());
      std::_Exit(kExitFailed);
    };
    options.group = group;
    options.cores = cores;
    const std::string busy = BusyMachine();
    const auto trained = Train(config, options);
    if (!trained) return tl::unexpected(Located(trained.error(), config));
    const TrainSummary& summary = *trained;
    const bool leads = group == nullptr || group->process() == 0;
    if (summary.interrupted) return ReportStop(summary, leads);
    if (!leads) return kExitOk;
    if (json_) {
      Log(stdout, "{}\n", ToJson(summary, busy).dump(2));
    } else {
      Print(summary, busy);
    }
    return kExitOk;
  }
};

}  // namespace

std::unique_ptr<Command> MakeTrainCommand() { return std::make_unique<TrainCommand>(); }

}  // namespace penstock
