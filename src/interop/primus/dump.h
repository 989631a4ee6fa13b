// Runs in the form that AMD Primus's simulator and trainer dump for their viewer: a folder with
// config.json and pp_rank_N.json, one a rank.
//
//   config.json      {"pp_size": 8, "vpp_size": 2, "micro_batches": 32}
//   pp_rank_0.json   {"0": {"total": ..., "memory": ..., "fwd_start": [...], "fwd_end": [...],
//                    "fwd_minibatch": [...], "fwd_chunk": [...], "bwd_...", "wgrad_..."}}
//
// The keys of a rank's file are iterations. `bwd` is a full backward, or the one for input where
// `wgrad` has the same microbatch and chunk. A forward and a backward of equal times are a pair.
//
//   penstock.json    {"comm": 0.5, "memory_unit": "B", "stage_costs": [...], ...}
//
// penstock.json holds what Primus's form lacks, for a run that comes back to be priced as it was:
// the latency, the overlap rule, the costs of each stage and their unit of memory. Primus ignores
// it; without it costs are the medians of the times, transfers take no time and memory has no unit.
//
// Units: times as in the file (milliseconds, from Primus); memory in its unit.
// Errors: kNotFound where a file is missing, kInvalidArgument where it says something else.
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
  Schedule schedule;  // well-formed; as invalid as what the dump shows
  Timeline timeline;
  Costs costs;              // as the dump says, else the medians of each stage's times
  std::string memory_unit;  // of these: bytes ("B"), or activations (empty)
};

// Whether `path` is such a folder.
bool IsPrimusDump(const std::string& path);

// Reads one iteration; the last one where none is given. The files do not say how chunks follow
// each other: looped or as a zigzag, whichever agrees with the times. Dumps of trainers that note
// no microbatches are read in the order of Megatron's schedules.
Result<PrimusDump> LoadPrimusDump(const std::string& folder, std::optional<int> iteration = {});

// A run to dump; all four belong together and live through the call.
struct PrimusRun {
  const Schedule& schedule;
  const Timeline& timeline;
  const Costs& costs;
  const SimulationResult& result;
  std::string memory_unit = {};  // of the costs: bytes ("B"), or activations (empty)
};

// Makes the folder where it is not there. Refuses replicas, slices and several batches, which the
// form lacks. Each file appears whole or not at all; only compute is written.
Status SavePrimusDump(const PrimusRun& run, const std::string& folder);

}  // namespace penstock
