// The options that choose a schedule and its costs: the same words in every command.
//
//   --schedule NAME[,NAME...] | --csv FILE     and what shapes and prices them
//
// FILE may be a folder of Primus's dumps (pp_rank_N.json): then it says its costs as well.
//
// A command embeds ScheduleOptions, calls the Define functions it needs, and Build() in Run().
// Fields that were not given stay empty, so that a configuration file can fill them before Build().
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/pass_options.h"
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
  Schedule schedule;                     // valid
  Costs costs;                           // one entry a stage
};

struct ScheduleOptions {
  // Where it comes from: exactly one of the two.
  std::vector<std::string> schedules;  // --schedule, or the positional NAME
  std::optional<std::string> csv;      // --csv
  // Its shape.
  std::optional<int> ranks, chunks, microbatches;
  std::optional<int> group, cuts, waves, steps, replicas;
  std::optional<std::string> weights;  // flush, stashed, double-buffered
  std::optional<int> iteration;        // of a folder of Primus's dumps
  bool split = false;
  // Its costs.
  std::optional<std::string> cost;          // "F" or "F,I,W", of one rank's share of a microbatch
  std::optional<double> comm;               // latency of one transfer
  std::optional<std::string> overlap;       // max, sum or a factor
  std::optional<std::string> memory_limit;  // activations of one rank and microbatch
  // Per-stage costs, from a configuration file; win over `cost`. One entry a stage, already of one
  // chunk (and cut), as in Costs.
  std::optional<std::vector<StageCosts>> stage_costs;
  // What is done to it then.
  PassOptions passes;
  // How a result is printed.
  std::optional<std::string> format;
  bool json = false;

  // --ranks --chunks --microbatches and the knobs of single algorithms.
  void DefineShape(CLI::App& app);
  // --cost --comm --overlap --memory-limit
  void DefineCosts(CLI::App& app);
  // --schedule and --csv with what a CSV cannot say (--replicas --weights).
  void DefineSource(CLI::App& app);
  // --replicas --weights --iteration alone, for a command whose argument is the file.
  void DefineCsvReading(CLI::App& app);
  // --format table|csv|json and --json for short.
  void DefineFormat(CLI::App& app);

  // What --schedule's algorithms are asked for.
  Result<ScheduleParams> Params() const;
  // Costs of any placement under these options.
  Result<Costs> CostsFor(const Placement& placement, int cuts) const;
  // Reads --csv with its options; not validated. The costs are those of a dump, where it is one and
  // the options do not price it.
  struct LoadedCsv {
    Schedule schedule;
    std::optional<Costs> costs;
  };
  Result<LoadedCsv> LoadCsvWithCosts() const;
  Result<Schedule> LoadCsv() const;
  // Every chosen schedule: generated, or read and validated. Refuses none and both sources.
  Result<std::vector<ChosenSchedule>> Build() const;
  Result<OutputFormat> Format() const;
};

// Refuses a schedule that has faults, naming the first; `label` is its name or file.
Status RequireValid(const Schedule& schedule, const std::string& label);

}  // namespace penstock
