// The options that choose a schedule and its costs, which all commands share.
//
//   penstock COMMAND SCHEDULE... [OPTION...]
//
// A SCHEDULE is a name or a file (candidates.h); --schedule and --csv are equivalent options. A
// folder of Primus's dumps or a recorded trace has costs as well.
//
// A command embeds ScheduleOptions, calls the Define functions it needs, and ChooseSchedules()
// (simulate_config.h) in Run(). Fields that the command line does not set stay empty, so that a
// configuration can set them before Build().
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cli/options/candidates.h"
#include "cli/options/costs/collectives_config.h"
#include "cli/options/given_in.h"
#include "cli/options/model_options.h"
#include "cli/options/pass_options.h"
#include "cli/options/sweep_axes.h"
#include "cli/options/time_option.h"
#include "schedule/catalog.h"
#include "schedule/cost_files/layer_costs.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/runs/monte_carlo.h"

namespace penstock {

enum class OutputFormat { kTable, kCsv, kJson };

// A schedule with its costs.
struct ChosenSchedule {
  std::string label;                     // the name or the file as the user wrote it
  const Algorithm* algorithm = nullptr;  // null for a file
  ScheduleParams params;                 // for a file, only what its lanes determine
  Schedule schedule;                     // valid; empty if only closed forms are needed
  Costs costs;                           // one entry per stage
  // The unit of memory: bytes ("B"), or activations of one rank and microbatch (empty).
  // `activation` is the size of the latter in this unit.
  std::string memory_unit;
  double activation = 1;
  double mean_length = 1;  // of its microbatches
  std::optional<MonteCarloOptions> jitter = {};
  std::optional<double> memory_limit = {};  // per rank, in the unit of memory
  // Whether the schedule stays within the limit: its algorithm supports one, or it is a file for
  // which the user gives one. Other schedules are only marked.
  bool heeds_limit = false;
  // Only with a model: the memory of a device, in which each rank's states and activations must
  // fit.
  std::optional<double> device_memory = {};
  int data = 1;  // of a model: replicas of the pipeline, each of which runs the microbatches
  std::string time_unit = {};  // "s", or empty for the unit of --cost
  std::string about = {};      // of a model: lines below the table
  // The times of a dump or trace, of the schedule as it is.
  std::optional<Timeline> measured = {};
};

struct ScheduleOptions {
  // Sources, as the user wrote them.
  std::vector<std::string> words;      // the positional arguments
  std::vector<std::string> schedules;  // --schedule: the same as an option
  std::vector<std::string> csv;        // --csv: CSV files with any ending
  // Sources, parsed by ReadSources().
  std::vector<Candidate> candidates;
  std::string config;  // the YAML file among the words; empty if there is none
  // Values to sweep over, and whether the command can: penstock simulate.
  std::vector<SweepAxis> sweep;
  bool can_sweep = false;
  // Whether several schedules are compared. Each then ignores options that others read, and memory
  // limits that it does not support.
  bool compares = false;
  // Shape.
  std::optional<int> ranks, chunks, microbatches;
  std::optional<int> group, slices, waves, steps, replicas;
  std::optional<std::string> weights;     // flush, stashed, double-buffered
  std::optional<int> iteration;           // of Primus's dumps or a trace
  std::optional<std::string> trace_rule;  // a file (interop/traces/trace_rule.h)
  bool split = false;
  std::optional<std::string> objective;  // makespan, span
  GivenIn given_in;                      // options that a configuration set, for errors
  bool prices = true;                    // false if the command needs only the order of actions
  // Costs.
  std::optional<std::string>
      cost;  // "F", "F,I,W" or "F,I,W,KEPT", of one rank's share of a microbatch
  std::optional<TimeOption> comm;                 // latency of one transfer
  std::optional<TimeOption> launch;               // added to each action that computes
  std::vector<std::string> slow_ranks;            // "RANK=FACTOR"
  std::optional<std::string> microbatch_lengths;  // "1,0.5,2", relative
  std::optional<std::string> overlap;             // max, sum or a factor
  std::optional<std::string> transfers;           // asynchronous, blocking or batched
  std::optional<int> offload_sharing;             // ranks that share a link to the slower pool
  Topology topology;                              // of a configuration; empty: all ranks are equal
  std::optional<CollectivesConfig> collectives;   // of a configuration
  std::optional<std::string> memory_limit;      // activations of one rank and microbatch, or bytes
  std::optional<std::string> activation_bytes;  // of one rank and microbatch: memory is in bytes
  std::optional<std::string> message_bytes;     // of a microbatch's tensor between two stages
  // Costs per stage from a configuration, which override `cost`: one entry per stage, for one chunk
  // and slice, as in Costs.
  std::optional<std::vector<StageCosts>> stage_costs;
  // Costs per layer, which fit any number of stages.
  std::vector<LayerGroup> layer_costs;
  std::optional<std::string> time_unit;  // of a configuration: "s" if its costs are seconds
  bool costs_in_bytes = false;           // whether their activations are in bytes
  // Runs with jitter, and whether the command can: penstock simulate.
  std::optional<std::string> jitter;  // coefficient of variation
  std::optional<int> seed, runs;
  bool can_jitter = false;
  bool shows_memory = false;  // by kind: penstock simulate --memory
  // A model and its devices, which determine all costs.
  PricedModel priced_model;
  // Transformations.
  PassOptions passes;
  // Output.
  std::optional<std::string> format;
  bool json = false;

  // --ranks --chunks --microbatches and the options of single algorithms.
  void DefineShape(CLI::App& app);
  // --cost --comm --overlap --memory-limit --activation-bytes --message-bytes, and those of
  // --model.
  void DefineCosts(CLI::App& app);
  // The positional SCHEDULE, --schedule and --csv, and what a CSV does not contain (--replicas
  // --weights).
  void DefineSource(CLI::App& app);
  // All of these and --pass: what commands take that draw or compare schedules.
  void DefineSchedules(CLI::App& app);
  // --format table|csv|json, and --json as its short form.
  void DefineFormat(CLI::App& app);

  // --jitter --seed --runs.
  void DefineJitter(CLI::App& app);

  // Refuses counts below 1.
  Status CheckCounts() const;
  // The parameters for algorithms.
  Result<ScheduleParams> Params() const;
  // The costs for a placement under these options.
  Result<Costs> CostsFor(const Placement& placement, int slices) const;
  // Parses the arguments that name schedules into candidates and config.
  Status ReadSources();
  // Reads a file with the options for it, without validating it. `costs` is set for a dump that no
  // option prices.
  struct LoadedFile {
    Schedule schedule;
    std::optional<Costs> costs;
    std::string memory_unit = {};  // of the costs
    std::optional<Timeline> measured = {};
    std::string time_unit = {};  // of the costs
  };
  Result<LoadedFile> LoadFile(const std::string& path) const;
  // These options overridden by those of the candidate. In a comparison, options that this
  // candidate does not read are dropped.
  Result<ScheduleOptions> For(const Candidate& candidate) const;
  // Generates every candidate, or reads and validates it. Refuses an empty list and options without
  // an effect. Errors name options as the user gave them, on the command line or in a file.
  Result<std::vector<ChosenSchedule>> Build() const;
  // Generates one candidate, or reads and validates it.
  Result<ChosenSchedule> BuildOne(const Candidate& candidate) const;
  // The parameters for one algorithm from all options or only from those that it reads. Make() then
  // adds the schedule and its costs.
  enum class Knobs { kAll, kThoseItReads, kAllButLimit };
  Result<ChosenSchedule> Choose(const Algorithm& algorithm, Knobs knobs) const;
  Status Make(ChosenSchedule& chosen) const;
  Result<OutputFormat> Format() const;

 private:
  // Overrides the latency and overlap of costs that a file has.
  Status SetTransferRules(Costs& costs) const;
  Result<LoadedFile> LoadDump(const std::string& path) const;
  Result<LoadedFile> LoadRecorded(const std::string& path) const;
  Result<LoadedFile> LoadChecked(const std::string& path) const;
  Result<ChosenSchedule> BuildFile(const std::string& path) const;
  Result<ChosenSchedule> BuildLoaded(const std::string& path, LoadedFile loaded) const;
  Result<ChosenSchedule> BuildAlgorithm(const std::string& name, Knobs knobs) const;
  // Costs of `replicas` chains of `stages` stages, from layer_costs or the model.
  Result<Costs> CostsOfLayers(int stages, int replicas, int slices,
                              const ScheduleParams& params) const;
  bool in_bytes() const { return costs_in_bytes || priced_model.given(); }
  bool shards_vocabulary() const;  // by --pass vocabulary
  // Whether the costs fit any number of stages.
  bool costs_by_layer() const { return priced_model.given() || !layer_costs.empty(); }
  // Sets what a model determines besides the costs: the unit of time and the memory limit.
  Status DescribeCosts(ChosenSchedule& chosen) const;
  // Sets the limit in `asked` to the memory that a model leaves, if the algorithm reads one and the
  // user gave none. `checked` has the defaults filled in.
  Status LimitByDevice(const Algorithm& algorithm, const ScheduleParams& checked,
                       ScheduleParams& asked) const;
  Result<std::vector<ChosenSchedule>> BuildAll() const;
  // Builds the first recorded trace among the candidates, with its position.
  Result<std::optional<std::pair<std::size_t, ChosenSchedule>>> BuildRecorded() const;
  // These options for an algorithm next to a recorded run: its ranks, microbatches and costs, where
  // no others are given.
  Result<ScheduleOptions> LikeRecorded(const ChosenSchedule& recorded,
                                       const Candidate& candidate) const;
  Result<ChosenSchedule> BuildNextTo(const ChosenSchedule& recorded,
                                     const Candidate& candidate) const;
  // Whether something says what actions cost.
  bool says_costs() const { return cost || stage_costs || costs_by_layer(); }
  // What times without a unit mean, and a refusal of those of the options that may be misread.
  PlainTime plain_time() const;
  Status CheckTimeUnits() const;
  // The value of a limit, in the unit of ScheduleParams.
  Result<double> Limit(const std::string& option, const std::string& text) const;
  // Sets the unit of memory and the size of a message.
  Status SetUnits(ChosenSchedule& chosen) const;
  // --launch --slow-rank --transfers --offload-sharing.
  void DefineSpeed(CLI::App& app);
  // Adds launches and the factors of slow ranks, if any are given, and which ranks share links.
  bool changes_speed() const { return (launch && launch->value != 0) || !slow_ranks.empty(); }
  Status SetSpeed(const Placement& placement, Costs& costs) const;
  // The size of a message of one slice; 0 if none is given.
  Result<double> MessageBytes(int slices) const;
  // The largest message_scale of the costs per stage or layer.
  double LargestScale() const;
  // The time of a message that shares no link, between the ranks and for the scale that make it
  // longest.
  Result<double> LongestMessage(int ranks, double bytes) const;
  Result<std::optional<MonteCarloOptions>> RunsWithJitter() const;
  void DefineLengths(CLI::App& app);  // --microbatch-lengths
  Result<std::vector<double>> Lengths() const;
  // Scales the costs of each microbatch by its length.
  Status SetLengths(ChosenSchedule& chosen, Costs& costs) const;
  // Sets the costs in `asked` to what searches plan with, for lengths, launches and slow ranks.
  // `checked` has the defaults filled in.
  Status PlanWithSpeed(const Algorithm& algorithm, const ScheduleParams& checked,
                       ScheduleParams& asked) const;
  // Sets how messages are sent and over which links.
  Status SetTransfers(Costs& costs) const;
  // Sets the times of collectives from their sizes, if the configuration describes them. `priced`
  // has the prices in activations.
  Status SetCollectives(const ChosenSchedule& chosen, const PassOptions& priced,
                        Costs& costs) const;
  // Runs the passes, then converts the costs to the unit of memory.
  Status SetCosts(ChosenSchedule& chosen, Costs costs) const;
};

}  // namespace penstock
