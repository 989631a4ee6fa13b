// The catalog: every schedule algorithm with one signature.
//
// An algorithm is a pure function from parameters to compute actions, in one file of algorithms/.
// Adding one takes that file and a row of algorithms.def.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"
#include "schedule/untrained.h"

namespace penstock {

// The unit of memory in messages.
struct MemoryUnit {
  std::string name = {};  // "GiB"; empty for the unit of memory_limit
  double scale = 1;       // named units per unit of memory_limit

  // Returns "3", "1.5GiB".
  std::string Text(double amount) const { return fmt::format("{:.6g}{}", amount * scale, name); }
};

// What a search makes as short as possible. Of two schedules with the same makespan, kMakespan
// takes the one with the shorter span, and kSpan the other way round.
enum class Objective {
  kMakespan,  // from time zero to the end
  kSpan,  // the longest time from a rank's first to its last action: what steps take that follow
          // each other without waiting for all ranks (Zero Bubble, section 4)
};

// The parameters of algorithms. Times are of one rank's share of one microbatch.
struct ScheduleParams {
  int ranks = 4;
  int chunks = 0;  // stages per rank; 0 is the algorithm's default
  int microbatches = 8;
  double forward = 1, backward_input = 1, backward_weight = 1;
  double kept_for_weight = 1;  // the part of a microbatch's activations that I keeps for W
  double comm = 0;
  OverlapRule overlap = {};                    // of pairs of a forward and a backward
  std::optional<Costs> costs = {};             // uneven stages; overrides the uniform times above
  std::optional<double> memory_limit = {};     // activations of one rank's share of one microbatch
  MemoryUnit memory_unit = {};                 // in messages about memory_limit
  Objective objective = Objective::kMakespan;  // of a search
  int group = 0;             // interleaved group size; 0 is the algorithm's default
  int slices = 1;            // pieces of a microbatch along the sequence
  int waves = 0;             // hanayo; 0 is the algorithm's default
  int steps = 1;             // number of batches, for schedules without a flush
  bool split = false;        // split the backward into I and W, if the algorithm has both forms
  Untrained untrained = {};  // stages that lack a part of the backward; every algorithm reads them
};

// Closed-form figures of one schedule. An empty field has no closed form for these parameters.
// Units as in ScheduleParams; memory in activations of one rank's share of one microbatch.
struct ClosedForm {
  std::optional<double> makespan = {};
  std::optional<double> peak_memory = {};  // of the worst rank
  std::optional<double> bubble = {};       // 1 - ideal/makespan
  // Messages between ranks in both directions, over all microbatch indices.
  std::optional<std::int64_t> messages = {};
};

// How an algorithm places its stages (placement.h), which determines the number of messages. A vee
// is a zigzag of two chunks; one chunk of either is linear.
enum class PlacementForm { kOther, kLinear, kLooped, kVee, kZigzag, kBidirectional };

std::string_view ToText(PlacementForm form);

// The parameters that an algorithm reads in addition to ranks, microbatches and costs.
struct SupportedParameters {
  int min_chunks = 1, max_chunks = 1, default_chunks = 1;  // stages per rank and chain
  int replicas = 1;                                        // chains (2: DualPipe, Chimera)
  bool group = false, slices = false, waves = false, steps = false, split = false;
  bool memory_limit = false;
  bool objective = false;
};

struct Algorithm {
  std::string_view name;
  std::vector<std::string_view> aliases;
  std::string_view summary;     // one line
  std::string_view when;        // when to use it, one or two sentences; may be empty
  std::string_view constraint;  // on the parameters, one line; empty if none
  std::string_view makespan;    // closed form, as text
  std::string_view memory;      // closed form of the peak, as text
  std::string_view source;      // paper and section
  PlacementForm placement = PlacementForm::kOther;
  SupportedParameters supported;

  // In the functions below params.chunks is never 0: the default is filled in.
  //
  // Refuses parameters for which the algorithm has no schedule; the error says which would do.
  // Empty if there are none. Common bounds and supported parameters are checked before.
  std::function<Status(const ScheduleParams&)> check;
  std::function<Schedule(const ScheduleParams&)> generate;  // requires a check() that passed
  // Makespan and peak memory, if there is a closed form. Callers use ClosedFormOf.
  std::function<ClosedForm(const ScheduleParams&)> closed_form;
};

// The built-in algorithms, in the order of docs/schedules.md.
std::span<const Algorithm> Catalog();

// Adds an algorithm of the embedding program. FindAlgorithm and Generate then treat it like a
// built-in one. `check` and `closed_form` may be empty.
// Ownership: the targets of its string views must live as long as the program.
// Threads: before any other thread uses the catalog.
// Errors: kInvalidArgument if it has no name or no `generate`, or if a name or alias is taken.
Status AddAlgorithm(Algorithm algorithm);

// Finds a built-in or added algorithm by name or alias. The error lists the names.
Result<const Algorithm*> FindAlgorithm(std::string_view name);

// Fills in the defaults. Refuses what the algorithm does not take; the error names the parameter.
Result<ScheduleParams> CheckParams(const Algorithm& algorithm, ScheduleParams params);

// Returns the algorithm's closed-form figures, and the bubble and messages that follow from them.
// If stages differ (params.costs) only the messages are known. Requires: params that CheckParams
// has returned.
ClosedForm ClosedFormOf(const Algorithm& algorithm, const ScheduleParams& params);

// Returns `params` without the parameters that the algorithm does not read, so that one set of
// options can compare several algorithms.
ScheduleParams DropUnsupported(const Algorithm& algorithm, ScheduleParams params);

// Finds the algorithm, checks the parameters and generates. Sets Schedule::algorithm. With
// untrained stages it is the schedule of a trained model without what they lack, or, if that is
// shorter, what the algorithm makes of costs without it.
Result<Schedule> Generate(std::string_view name, const ScheduleParams& params);

}  // namespace penstock
