// Schedules with their costs, as a scenario asks for them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "scenario/scenario.h"
#include "schedule/catalog.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/runs/monte_carlo.h"

namespace penstock {

// A schedule with its costs.
struct PricedSchedule {
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
  std::optional<int> repeat = {};  // consecutive steps to run for the time of one in steady state
  std::optional<double> memory_limit = {};  // per rank, in the unit of memory
  // Whether the schedule stays within the limit: its algorithm supports one, or it is a file for
  // which the user gives one. Other schedules are only marked.
  bool heeds_limit = false;
  // With a model: the memory of its largest device. Each rank's states and activations must fit in
  // its own.
  std::optional<double> device_memory = {};
  std::optional<ModelOnCluster> model = {};
  // Whether the schedule itself has the optimizer's steps, and the collectives of shards.
  bool has_steps = false, has_collectives = false;
  int devices = 1;             // with a model: of all ranks and replicas
  int idle_devices = 0;        // of `nodes`, with a model: what no rank uses
  int data = 1;                // with a model: replicas of the pipeline; each runs all microbatches
  std::string time_unit = {};  // "s", or empty for the unit of the costs
  std::string about = {};      // with a model or a profile: lines below the table
  // The times and the costs of a dump or trace, of the schedule before passes.
  std::optional<Timeline> measured = {};
  std::string reading = {};  // of a trace: which step was read
  std::optional<FileCosts> file_costs = {};
};

// Which parameters an algorithm gets.
enum class Given {
  kAll,          // it refuses parameters that it does not read
  kAllButLimit,  // but a limit that it does not read is left to the caller
  kSupported,    // only parameters that it reads
};

// Returns the scenario of one candidate: with its own fields, and in a comparison without fields
// that it does not read.
Result<Scenario> ScenarioOf(const Scenario& scenario, const Candidate& candidate);

// Returns an algorithm with its parameters, units and limits. MakeSchedule() adds the schedule and
// its costs.
Result<PricedSchedule> Choose(const Scenario& scenario, const Algorithm& algorithm, Given given);
Status MakeSchedule(const Scenario& scenario, PricedSchedule& chosen);

// Prices a schedule that exists. `costs` are the costs before passes; empty: the scenario's.
Result<PricedSchedule> Price(const Scenario& scenario, Schedule schedule,
                             std::optional<Costs> costs = {});

// Generates one candidate, or reads and validates it.
Result<PricedSchedule> BuildOne(const Scenario& scenario, const Candidate& candidate,
                                const Purpose& purpose);
// Puts a candidate with fields of its own in front of an error about it.
Error About(const Candidate& candidate, Error error);
// Builds every candidate, next to the first file if there is one (next_to_file.h). Refuses an empty
// list, and prices of what no schedule does. Requires: RefuseUnused() has passed. Errors:
// kInvalidArgument about a field or with the candidate in front.
Result<std::vector<PricedSchedule>> Build(const Scenario& scenario, const Purpose& purpose);

}  // namespace penstock
