// Dumps in the format of AMD Primus's simulator and trainer, which their viewer reads: a folder
// with config.json and one pp_rank_N.json per rank.
//
//   config.json      {"pp_size": 8, "vpp_size": 2, "micro_batches": 32}
//   pp_rank_0.json   {"0": {"total": ..., "memory": ..., "fwd_start": [...], "fwd_end": [...],
//                    "fwd_minibatch": [...], "fwd_chunk": [...], "bwd_...", "wgrad_..."}}
//
// The keys of a rank's file are iterations. `bwd` is a full backward, or a backward for input if
// `wgrad` has the same microbatch and chunk. A forward and a backward with equal times are an
// overlapped pair.
//
//   penstock.json    {"comm": 0.5, "memory_unit": "B", "stage_costs": [...], ...}
//
// penstock.json has what Primus's format lacks, so that loading a dump gives the same figures
// again: the latency, the overlap rule, the costs of each stage and their unit of memory. Primus
// ignores it. Without it, costs are the medians of the times, transfers take no time and memory has
// no unit.
//
// Units: times as in the file (milliseconds, from Primus); memory in its unit.
// Errors: kNotFound for a missing file, kInvalidArgument for unexpected contents.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/simulate.h"

namespace penstock {

struct PrimusDump {
  Schedule schedule;  // well-formed, but not validated
  Timeline timeline;
  Costs costs;              // from penstock.json, else the medians of each stage's times
  std::string memory_unit;  // of the costs: bytes ("B"), or activations (empty)
  bool measured = true;     // false if penstock.json says that Penstock simulated the times
};

// Whether `path` is a folder with a dump.
bool IsPrimusDump(const std::string& path);

// Reads one iteration, by default the last. The files do not record the placement: it is looped or
// a zigzag, whichever agrees with the times. Dumps of trainers that do not record microbatches are
// read in the order of Megatron's schedules.
Result<PrimusDump> LoadPrimusDump(const std::string& folder, std::optional<int> iteration = {});

// A run to dump. The references must outlive the call.
struct PrimusRun {
  const Schedule& schedule;
  const Timeline& timeline;
  const Costs& costs;
  const SimulationResult& result;
  std::string memory_unit = {};  // of the costs: bytes ("B"), or activations (empty)
};

// Creates the folder if needed and writes only compute actions, each file atomically. Refuses
// replicas, slices and several steps, which the format cannot represent.
Status SavePrimusDump(const PrimusRun& run, const std::string& folder);

}  // namespace penstock
