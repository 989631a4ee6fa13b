// penstock train: trains a model over pipeline ranks and writes the run's files to runs/NAME.
#include "train/train.h"

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/system/machine_load.h"
#include "cli/command/command.h"
#include "cli/engine/offered_keys.h"
#include "cli/help/help.h"
#include "cli/processes/run_on_processes.h"
#include "cli/signals/stop_signals.h"
#include "cli/signals/trace_signal.h"
#include "cli/start_engine/engine_table.h"

namespace penstock {
namespace {

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

std::string HelpOf(const std::string& key) {
  for (const ConfigKey& each : KeysOf(TrainConfig())) {
    if (each.key == key) return each.help;
  }
  PENSTOCK_CHECK(false, "there is no key {}", key);
}

// Every key of a configuration with its default, then those that the models have of their own.
std::vector<HelpGroup> HelpOfKeys() {
  TrainConfig config;
  std::vector<HelpGroup> groups = {{"Keys of CONFIG.yaml and KEY=VALUE", {}}};
  for (const std::string_view name : ModelNames()) {
    config.model.name = name;
    HelpGroup own{fmt::format("Keys of model {} ({})", name, ModelSummary(name)), {}};
    for (const ConfigKey& key : KeysOf(config)) {
      if (!key.of_model && name != ModelNames().front()) continue;
      HelpGroup& group = key.of_model ? own : groups.front();
      group.entries.push_back({key.key, fmt::format("{} (default {})", key.help, key.value)});
    }
    groups.push_back(std::move(own));
  }
  return groups;
}

class TrainCommand final : public Command {
 public:
  std::string Name() const override { return kTrainEntry.name; }
  std::string Summary() const override { return kTrainEntry.summary; }

  void Define(CLI::App& app) override {
    app.add_option("CONFIG.yaml", config_, "The training configuration")->required();
    Offer(app.add_option("KEY=VALUE", overrides_,
                         "Override any key of the configuration: model.dim=64 steps=100"),
          OfferedKeys);
    const auto add = [&](const std::string& name, const std::string& key, const char* value_name) {
      return app
          .add_option_function<std::string>(
              name, [this, key](const std::string& value) { Override(key, value); }, HelpOf(key))
          ->type_name(value_name);
    };
    add("--data", "data.path", "PATH");
    add("-p,--ranks", "pipeline.ranks", "N");
    add("-v,--chunks", "pipeline.chunks", "N");
    Offer(add("-s,--schedule", "pipeline.schedule", "NAME"), [] {
      OfferedValues offered = OfferedSchedules(OfferedPaths::kNone);
      offered.in_list = false;
      return offered;
    });
    add("--csv", "pipeline.csv", "FILE");
    add("-m,--microbatches", "pipeline.microbatches", "N");
    add("--group", "pipeline.group", "N");
    add("--waves", "pipeline.waves", "N");
    add("--slices", "pipeline.slices", "N");
    add("--cost", "pipeline.cost", "F,I,W");
    add("--comm", "pipeline.comm", "TIME");
    add("--overlap", "pipeline.overlap", "RULE");
    add("--steps", "steps", "N");
    add("--seconds", "seconds", "SECONDS");
    add("--seed", "seed", "N");
    add("--name", "name", "NAME");
    add("--checkpoint-every", "checkpoint.every", "N");
    add("--resume", "resume", "PATH");
    add("--trace-steps", "trace_steps", "N,N");
    app.add_flag("--json", json_, "Print one JSON object to stdout and all else to stderr");
    app.footer(
        "Files go to runs/NAME, which only one run at a time may use; those of an earlier run "
        "there are moved to runs/NAME/superseded-N. Each line of metrics.jsonl "
        "has step, loss, lr, grad_norm, clipped, skipped, bubble and seconds, and by rank busy (in "
        "seconds), rank_bubble and peak_activation_bytes; with validation.freq, further lines have "
        "step "
        "and held_out_loss; 'penstock watch NAME' shows them. SIGINT "
        "(Ctrl-C), SIGTERM and SIGUSR2 stop the run after the current step, with a checkpoint that "
        "resume=auto resumes from; a second signal, more than a second later, stops at once. "
        "SIGUSR1 writes the timeline of "
        "the current step, once it has ended, to trace-step-N.json.");
  }

  std::vector<HelpGroup> MoreHelp() const override { return HelpOfKeys(); }

  std::string ExitCodes() const override {
    return "0 success; 1 the run failed: a stage, a file, a loss that is not finite, or too many "
           "skipped steps; 2 bad usage or input; 130 stopped by SIGINT; 140 stopped by SIGUSR2; "
           "143 stopped by SIGTERM";
  }

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
    PENSTOCK_TRY(const TrainSummary summary, Train(config, options));
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

  void Override(const std::string& key, const std::string& value) {
    options_.push_back(key + "=" + value);
    has_csv_ = has_csv_ || key == "pipeline.csv";
    has_schedule_ = has_schedule_ || key == "pipeline.schedule";
  }

  // Options take precedence over KEY=VALUE. --schedule replaces a CSV of the file, and --csv a
  // name.
  std::vector<std::string> AllOverrides() const {
    std::vector<std::string> all = overrides_;
    if (has_csv_ && !has_schedule_) all.emplace_back("pipeline.schedule=auto");
    if (has_schedule_ && !has_csv_) all.emplace_back("pipeline.csv=");
    all.insert(all.end(), options_.begin(), options_.end());
    return all;
  }

  std::string config_;
  std::vector<std::string> overrides_;
  std::vector<std::string> options_;  // as key=value
  bool has_csv_ = false;
  bool has_schedule_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeTrainCommand() { return std::make_unique<TrainCommand>(); }

}  // namespace penstock
