#include "cli/definitions/definitions.h"

#include <array>
#include <filesystem>
#include <set>

#include "cli/commands.h"
#include "cli/help/offered_values.h"
#include "config/train_config.h"
#include "schedule/catalog.h"

namespace penstock {
namespace {

// The keys of a training configuration and of every model as KEY=, and KEY=VALUE for keys with a
// fixed set of values.
OfferedValues OfferedKeys() {
  OfferedValues offered;
  const auto add = [&](const std::string& key, std::string_view value) {
    offered.values.push_back({fmt::format("{}={}", key, value)});
  };
  std::set<std::string> seen;
  TrainConfig config;
  for (const std::string_view model : ModelNames()) {
    config.model.name = model;
    for (const ConfigKey& key : KeysOf(config)) {
      if (!seen.insert(key.key).second) continue;
      offered.values.push_back({key.key + "=", key.help});
      for (const std::string_view value : key.choices) add(key.key, value);
    }
    add("model.name", model);
  }
  for (const Algorithm& algorithm : Catalog()) add("pipeline.schedule", algorithm.name);
  return offered;
}

std::string HelpOf(const std::string& key) {
  for (const ConfigKey& each : KeysOf(TrainConfig())) {
    if (each.key == key) return each.help;
  }
  PENSTOCK_CHECK(false, "there is no key {}", key);
}

// Every key of a configuration with its default, then the models' own keys.
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

// The first argument. Refuses KEY=VALUE in its place.
void AddConfig(CLI::App& app, std::string& config) {
  app.add_option("CONFIG.yaml", config, "The training configuration")
      ->required()
      ->check([](const std::string& word) -> std::string {
        std::error_code error;
        if (word.find('=') == std::string::npos || std::filesystem::exists(word, error)) return "";
        return fmt::format(
            "'{}' is KEY=VALUE; the first argument is the file of the training configuration",
            word);
      });
}

constexpr std::array kGraphPasses = {
#define PENSTOCK_PASS(name, run, must_run, for_cpus, why) name,
#include "graph/passes/passes.def"
#undef PENSTOCK_PASS
};

OfferedValues OfferedGraphPasses() {
  OfferedValues offered;
  for (const char* const pass : kGraphPasses) offered.values.push_back({pass});
  return offered;
}

}  // namespace

Result<int> EngineDefinition::Run() {
  throw InternalError(fmt::format("penstock-engine runs '{}'", Name()));
}

void TrainDefinition::Define(CLI::App& app) {
  AddConfig(app, config_);
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
      "Files go to runs/NAME, which only one run at a time may use; files of an earlier run there "
      "are moved to runs/NAME/superseded-N. Each line of metrics.jsonl "
      "has step, loss, lr, grad_norm, clipped, skipped, bubble and seconds, and by rank busy (in "
      "seconds), rank_bubble and peak_activation_bytes; with validation.freq, further lines have "
      "step "
      "and held_out_loss; 'penstock watch NAME' shows them. SIGINT "
      "(Ctrl-C), SIGTERM and SIGUSR2 stop the run after the current step, with a checkpoint that "
      "resume=auto resumes from; a second signal, more than a second later, stops at once. "
      "SIGUSR1 writes the timeline of "
      "the current step, once it has ended, to trace-step-N.json.");
}

std::vector<HelpGroup> TrainDefinition::MoreHelp() const { return HelpOfKeys(); }

std::string TrainDefinition::ExitCodes() const {
  return "0 success; 1 the run failed: a stage, a file, a loss that is not finite, or too many "
         "skipped steps; 2 bad usage or input; 130 stopped by SIGINT; 140 stopped by SIGUSR2; "
         "143 stopped by SIGTERM";
}

void TrainDefinition::Override(const std::string& key, const std::string& value) {
  options_.push_back(key + "=" + value);
  has_csv_ = has_csv_ || key == "pipeline.csv";
  has_schedule_ = has_schedule_ || key == "pipeline.schedule";
}

// Options take precedence over KEY=VALUE. --schedule replaces a CSV of the file, and --csv a
// name.
std::vector<std::string> TrainDefinition::AllOverrides() const {
  std::vector<std::string> all = overrides_;
  if (has_csv_ && !has_schedule_) all.emplace_back("pipeline.schedule=auto");
  if (has_schedule_ && !has_csv_) all.emplace_back("pipeline.csv=");
  all.insert(all.end(), options_.begin(), options_.end());
  return all;
}

void GenerateDefinition::Define(CLI::App& app) {
  Offer(app.add_option("CHECKPOINT", checkpoint_,
                       "A run's name or folder, a checkpoint file, or a folder with a model in "
                       "Hugging Face's format"),
        [] { return OfferedRuns(OfferedPaths::kFiles); })
      ->required();
  app.add_option("--prompt", options_.prompt, "Start of the text")->type_name("TEXT");
  app.add_option("--tokens,--bytes", options_.tokens,
                 "Number of tokens (bytes) to generate (default 300)");
  app.add_option("--temperature", options_.temperature,
                 "0 takes the most likely token; higher values vary more (default 0.8)");
  app.add_option("--top-k", options_.top_k,
                 "Choose among the k most likely tokens only (default 0: all)");
  app.add_option("--top-p", options_.top_p,
                 "Choose among the most likely tokens whose probabilities add up to this (default "
                 "1: all)");
  app.add_option("--seed", options_.seed, "Seed of the random choices (default 1)");
  app.add_option("--device", options_.device,
                 "Device that computes: cpu, cuda, cuda:1, xpu (default cpu)")
      ->type_name("NAME");
  app.add_flag("--ema", options_.ema,
               "Use the moving average of the weights, of a run with optimizer.ema");
  app.add_flag("--json", json_, "Print one JSON object");
}

void EvalDefinition::Define(CLI::App& app) {
  Offer(app.add_option("CHECKPOINT", checkpoint_,
                       "A run's name or folder, a checkpoint file, or a folder with config.json "
                       "and weights in Hugging Face's format"),
        [] { return OfferedRuns(OfferedPaths::kFiles); })
      ->required();
  app.add_option(
         "--data", data_,
         "A text file, a folder of text files, or a folder of 'penstock tokenize' (default: "
         "the run's)")
      ->type_name("PATH");
  app.add_option("--sequence", sequence_,
                 "Tokens per window, for a folder with config.json: its whole text is evaluated "
                 "(default 128, or the model's positions if it has fewer)")
      ->check(CLI::Range(1, 1'000'000'000));
  app.add_option("--device", device_, "Device that computes: cpu, cuda, cuda:1, xpu (default cpu)")
      ->type_name("NAME");
  app.add_flag("--ema", ema_, "Use the moving average of the weights, of a run with optimizer.ema");
  app.add_flag("--json", json_, "Print one JSON object");
}

void GraphDefinition::Define(CLI::App& app) {
  std::string passes;
  for (const char* const pass : kGraphPasses) passes += fmt::format(" {}", pass);
  AddConfig(app, config_);
  Offer(app.add_option("KEY=VALUE", overrides_, "Override any key of the configuration"),
        OfferedKeys);
  app.add_option("--stage", stage_, "Index of the stage")->capture_default_str();
  Offer(app.add_option("--after", stop_after_,
                       "Stop after this pass; in order: capture (none yet)" + passes)
            ->type_name("PASS"),
        [] {
          OfferedValues offered = OfferedGraphPasses();
          offered.values.insert(offered.values.begin(), {"capture"});
          return offered;
        });
  Offer(app.add_option("--disable", disabled_, "Skip these passes; commas separate several")
            ->delimiter(',')
            ->allow_extra_args(false)
            ->type_name("PASS"),
        OfferedGraphPasses);
  app.add_option("--graph", only_,
                 "Only this graph: joint, forward, backward, backward_input, backward_weight, "
                 "unshard or reduce_grad (of shards, with parallel.zero), or overlapped (a "
                 "forward and a backward of two microbatches, by estimated costs)")
      ->type_name("NAME");
  app.add_flag("--inexact", inexact_,
               "As with exact: false: weight gradients are accumulated inside the matmuls, large "
               "matmuls run in oneDNN, sums and exponentials in fused kernels");
  app.add_flag("--shapes-only", shapes_only_,
               "Capture without allocating the stage: for models larger than this machine");
  app.add_flag("--timing", timing_, "Print how long each pass took, in place of the graphs");
  app.add_flag("--dot", dot_, "Print Graphviz");
  app.add_flag("--json", json_, "Print figures and text as JSON");
}

void CompileDefinition::Define(CLI::App& app) {
  AddConfig(app, config_);
  Offer(app.add_option("KEY=VALUE", overrides_, "Override any key of the configuration"),
        OfferedKeys);
  app.add_option("-o,--output", folder_, "Folder to write to, one file per stage")
      ->required()
      ->type_name("FOLDER");
  app.add_flag("--json", json_, "Print one JSON array");
}

void ProfileDefinition::Define(CLI::App& app) {
  AddConfig(app, config_);
  Offer(app.add_option("KEY=VALUE", overrides_, "Override any key of the configuration"),
        OfferedKeys);
  app.add_option("-o,--output", path_, "File to write, which 'penstock simulate --machine' reads")
      ->required()
      ->type_name("FILE.yaml");
  app.add_option("--rounds", rounds_, "How often each pipeline is measured, in turn (default 5)")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N");
  app.add_flag("--json", json_, "Print one JSON object to stdout and all else to stderr");
  app.footer(
      "Runs small pipelines of the configured model. 'penstock simulate CONFIG.yaml --machine "
      "FILE.yaml' then predicts a step of the run with any schedule, chunks, microbatches and "
      "layers.");
}

void ExportDefinition::Define(CLI::App& app) {
  Offer(app.add_option("CHECKPOINT", checkpoint_, "A run's name or folder, or a checkpoint file"),
        [] { return OfferedRuns(OfferedPaths::kFiles); })
      ->required();
  app.add_flag("--ema", ema_, "Use the moving average of the weights, of a run with optimizer.ema");
  app.add_option("-o,--output", folder_,
                 "Folder to write config.json, model.safetensors and the tokenizer to")
      ->required()
      ->type_name("FOLDER");
}

void CheckDeviceDefinition::Define(CLI::App& app) {
  app.add_option("DEVICE", device_, "The device: cuda, cuda:1, xpu")->required();
  app.add_flag("--json", json_, "Print one JSON object");
  app.footer(
      "Trains small models for three steps on the device and on the CPU: each kind of model, five "
      "schedules, and options that move data between ranks. Prints the largest relative difference "
      "of their losses, and the seconds on the device. It takes about a minute.");
}

std::vector<std::unique_ptr<Command>> EngineDefinitions() {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(std::make_unique<TrainDefinition>());
  commands.push_back(std::make_unique<GenerateDefinition>());
  commands.push_back(std::make_unique<EvalDefinition>());
  commands.push_back(std::make_unique<GraphDefinition>());
  commands.push_back(std::make_unique<CompileDefinition>());
  commands.push_back(std::make_unique<ProfileDefinition>());
  commands.push_back(std::make_unique<ExportDefinition>());
  commands.push_back(std::make_unique<CheckDeviceDefinition>());
  return commands;
}

}  // namespace penstock
