// The options that choose a schedule and its costs: the same words in every command.
//
//   penstock COMMAND SCHEDULE...     and what shapes and prices them
//
// A SCHEDULE is a name or a file (candidates.h); --schedule and --csv give the same by options. A
// folder of Primus's dumps says its costs as well.
//
// A command embeds ScheduleOptions, calls the Define functions it needs, and ChooseSchedules()
// (simulate_config.h) in Run(). Fields that were not given stay empty, so that a configuration file
// can fill them before Build().
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/options/candidates.h"
#include "cli/options/given_in.h"
#include "cli/options/layer_costs.h"
#include "cli/options/pass_options.h"
#include "schedule/catalog.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"

namespace penstock {

enum class OutputFormat { kTable, kCsv, kJson };

// A schedule ready to be read, with what it costs.
struct ChosenSchedule {
  std::string label;                     // the name or the file as the user wrote it
  const Algorithm* algorithm = nullptr;  // null for a file
  ScheduleParams params;                 // of a file: as far as its rows say
  Schedule schedule;                     // valid; empty where only its closed forms are wanted
  Costs costs;                           // one entry a stage
  // What its memory is in: bytes ("B"), or activations of one rank and microbatch (empty), of which
  // one is `activation` in that unit.
  std::string memory_unit;
  double activation = 1;
  std::optional<double> memory_limit = {};  // of a rank, in the unit of its memory
};

struct ScheduleOptions {
  // Where it comes from, as the user wrote it.
  std::vector<std::string> words;      // the positional arguments
  std::vector<std::string> schedules;  // --schedule: the same by an option
  std::vector<std::string> csv;        // --csv: a schedule's file, whatever its ending
  // What these mean: ReadSources() fills both.
  std::vector<Candidate> candidates;
  std::string config;  // the YAML file among the words; empty without one
  // Its shape.
  std::optional<int> ranks, chunks, microbatches;
  std::optional<int> group, slices, waves, steps, replicas;
  std::optional<std::string> weights;  // flush, stashed, double-buffered
  std::optional<int> iteration;        // of a folder of Primus's dumps
  bool split = false;
  GivenIn given_in;    // what a configuration file gave, for errors
  bool prices = true;  // whether the command prices schedules; else it only orders their actions
  // Its costs.
  std::optional<std::string> cost;          // "F" or "F,I,W", of one rank's share of a microbatch
  std::optional<double> comm;               // latency of one transfer
  std::optional<std::string> overlap;       // max, sum or a factor
  std::optional<std::string> memory_limit;  // activations of one rank and microbatch, or bytes
  std::optional<std::string> activation_bytes;  // of one rank and microbatch: memory is in bytes
  std::optional<std::string> message_bytes;     // of the tensor between two stages, a microbatch
  // Per-stage costs, from a configuration file; win over `cost`. One entry a stage, already of one
  // chunk (and slice), as in Costs.
  std::optional<std::vector<StageCosts>> stage_costs;
  // The same of layers, which fit any number of stages.
  std::vector<LayerGroup> layer_costs;
  bool costs_in_bytes = false;  // what the activations of either are in
  // What is done to it then.
  PassOptions passes;
  // How a result is printed.
  std::optional<std::string> format;
  bool json = false;

  // --ranks --chunks --microbatches and the knobs of single algorithms.
  void DefineShape(CLI::App& app);
  // --cost --comm --overlap --memory-limit --activation-bytes --message-bytes
  void DefineCosts(CLI::App& app);
  // The positional SCHEDULE, --schedule and --csv with what a CSV cannot say (--replicas
  // --weights).
  void DefineSource(CLI::App& app);
  // --format table|csv|json and --json for short.
  void DefineFormat(CLI::App& app);

  // Refuses counts below 1.
  Status CheckCounts() const;
  // What --schedule's algorithms are asked for.
  Result<ScheduleParams> Params() const;
  // Costs of any placement under these options.
  Result<Costs> CostsFor(const Placement& placement, int slices) const;
  // Reads the words that name schedules into candidates and config.
  Status ReadSources();
  // Reads a file with the options for it; does not validate it. The costs are those of a dump that
  // the options do not price.
  struct LoadedFile {
    Schedule schedule;
    std::optional<Costs> costs;
    std::string memory_unit = {};  // of these costs
  };
  Result<LoadedFile> LoadFile(const std::string& path) const;
  // These options with those of the candidate in place of them, and without those that it does not
  // read if it is one of several.
  Result<ScheduleOptions> For(const Candidate& candidate) const;
  // Every candidate: generated, or read and validated. Refuses to build none, and options without
  // an effect. Errors name options as they were given: on the command line or in a file.
  Result<std::vector<ChosenSchedule>> Build() const;
  // What these options ask of one algorithm: all of them, or those that it reads. Without the
  // schedule and what its stages cost, which Make() adds.
  enum class Knobs { kAll, kThoseItReads, kAllButLimit };
  Result<ChosenSchedule> Choose(const Algorithm& algorithm, Knobs knobs) const;
  Status Make(ChosenSchedule& chosen) const;
  Result<OutputFormat> Format() const;

 private:
  Result<LoadedFile> LoadDump(const std::string& path) const;
  Result<LoadedFile> LoadChecked(const std::string& path) const;
  Result<ChosenSchedule> BuildFile(const std::string& path) const;
  Result<ChosenSchedule> BuildLoaded(const std::string& path, LoadedFile loaded) const;
  Result<ChosenSchedule> BuildAlgorithm(const std::string& name, Knobs knobs) const;
  Result<ChosenSchedule> BuildOne(const Candidate& candidate) const;
  // Costs of `replicas` chains of `stages` stages from layer_costs.
  Result<Costs> CostsOfLayers(int stages, int replicas, int row_slices,
                              const ScheduleParams& params) const;
  Result<std::vector<ChosenSchedule>> BuildAll() const;
  // A limit that `option` was given, in the unit of ScheduleParams.
  Result<double> Limit(const std::string& option, const std::string& text) const;
  // What memory is in, and how large a message is.
  Status SetUnits(ChosenSchedule& chosen) const;
  // Runs the passes, then brings the costs to those units.
  Status SetCosts(ChosenSchedule& chosen, Costs costs) const;
};

// Refuses a schedule that has faults, naming the first; `label` is its name or file.
Status RequireValid(const Schedule& schedule, const std::string& label);

}  // namespace penstock
