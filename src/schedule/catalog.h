// The catalog: every schedule algorithm behind one signature.
//
// An algorithm is a pure function from parameters to compute-only actions, in one file under
// algorithms/. Adding one is that file and one line in catalog.cpp.
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

namespace penstock {

// How the caller counts memory, for messages.
struct MemoryUnit {
  std::string name = {};  // "GiB"; empty for the unit that memory_limit is in
  double scale = 1;       // of the named unit in one of memory_limit's

  // "3", "1.5GiB".
  std::string Text(double amount) const { return fmt::format("{:.6g}{}", amount * scale, name); }
};

// What an algorithm may ask for. Times are of one rank's share of one microbatch.
struct ScheduleParams {
  int ranks = 4;
  int chunks = 0;  // stages a rank holds; 0 is the algorithm's default
  int microbatches = 8;
  double forward = 1, backward_input = 1, backward_weight = 1;
  double comm = 0;
  OverlapRule overlap = {};                 // of pairs of a forward and a backward
  std::optional<Costs> costs = {};          // uneven stages; overrides the uniform times above
  std::optional<double> memory_limit = {};  // activations of one rank's share of one microbatch
  MemoryUnit memory_unit = {};              // of messages about memory_limit
  int group = 0;                            // interleaved group size; 0 is the algorithm's default
  int slices = 1;                           // pieces of a microbatch along the sequence
  int waves = 0;                            // hanayo; 0 is the algorithm's default
  int steps = 1;                            // batches, for schedules without a flush
  bool split = false;  // backward in I and W where the algorithm has both forms
};

// Figures of one schedule in closed form. An empty field has no closed form at these parameters.
// Units as in ScheduleParams; memory in activations of one rank's share of one microbatch.
struct ClosedForm {
  std::optional<double> makespan = {};
  std::optional<double> peak_memory = {};  // of the worst rank
  std::optional<double> bubble = {};       // 1 - ideal/makespan
  // Between ranks, both ways, over all rows: those of one microbatch times its number.
  std::optional<std::int64_t> messages = {};
};

// How an algorithm places its stages (placement.h), which says how many messages it sends. A vee is
// a zigzag of two chunks; one chunk of either is linear.
enum class PlacementForm { kOther, kLinear, kLooped, kVee, kZigzag, kBidirectional };

std::string_view ToText(PlacementForm form);

// Knobs of ScheduleParams beyond ranks, microbatches and costs that an algorithm reads.
struct Knobs {
  int min_chunks = 1, max_chunks = 1, default_chunks = 1;  // stages a rank holds of one chain
  int replicas = 1;                                        // chains (2: DualPipe, Chimera)
  bool group = false, slices = false, waves = false, steps = false, split = false;
  bool memory_limit = false;
};

struct Algorithm {
  std::string_view name;
  std::vector<std::string_view> aliases;
  std::string_view summary;     // one line
  std::string_view when;        // when to use it, one or two sentences; empty where nobody says
  std::string_view constraint;  // what parameters it takes, one line; empty for any
  std::string_view makespan;    // closed form, as text
  std::string_view memory;      // closed form of the peak, as text
  std::string_view source;      // paper and section
  PlacementForm placement = PlacementForm::kOther;
  Knobs knobs;

  // Below, params.chunks is never 0: the default is filled in.
  //
  // Refuses parameters the algorithm has no schedule for: what is wrong and what would do. Empty
  // where it takes any; the common bounds and the knobs are checked before it.
  std::function<Status(const ScheduleParams&)> check;
  std::function<Schedule(const ScheduleParams&)> generate;  // requires a check() that passed
  // Makespan and peak memory, where the row says so; ask ClosedFormOf.
  std::function<ClosedForm(const ScheduleParams&)> closed_form;
};

// Every algorithm of ours, in the order of docs/schedules.md.
std::span<const Algorithm> Catalog();

// Adds an algorithm of the embedding program: FindAlgorithm and Generate then know it as they know
// ours. `check` and `closed_form` may be empty.
// Ownership: what the row's string views refer to lives as long as the program.
// Threads: before any other thread uses the catalog.
// Errors: kInvalidArgument where it has no name or no `generate`, or where a name or alias is
// taken.
Status AddAlgorithm(Algorithm algorithm);

// By name or alias, among ours and those added; the error lists the names.
Result<const Algorithm*> FindAlgorithm(std::string_view name);

// Fills in the algorithm's defaults and refuses what it does not take, naming the option.
Result<ScheduleParams> CheckParams(const Algorithm& algorithm, ScheduleParams params);

// All that is known in closed form: what the row's closed_form says, with the bubble and the
// messages that follow. Where stages differ (params.costs) only the messages are. Requires: params
// that CheckParams has passed.
ClosedForm ClosedFormOf(const Algorithm& algorithm, const ScheduleParams& params);

// `params` without the knobs that the algorithm does not read, so that one set of options serves a
// comparison of several algorithms.
ScheduleParams DropUnusedKnobs(const Algorithm& algorithm, ScheduleParams params);

// Finds, checks and generates; sets Schedule::algorithm. Compute actions only.
Result<Schedule> Generate(std::string_view name, const ScheduleParams& params);

}  // namespace penstock
