// The configuration of Primus's pipeline simulator (pp_simulation.yaml):
//
//   fwd_time: 1000            times of all of a rank's layers for one microbatch
//   bwd_time: 1000            backward for input
//   wgrad_time: 1000          backward for weight; a full backward takes both
//   output_dir: ./result      receives NAME/pp_rank_N.json of every scheduler
//   schedulers:
//     - name: v-half
//       class: primus.core.pipeline_parallel.scheduler.algorithms.zbv_greedy.ScheduleZBVGreedy
//       pp_size: 8
//       vpp_size: 2
//       micro_batches: 32
//       memory_config: half
//
// `chunk_time_ms` (by rank and chunk: fwd, bwd, wgrad, activation) replaces the three times. The
// last component of a class path names the algorithm; without `class`, `name` does, in Primus's
// words or in ours. Makespans equal Primus's simulator's, which rounds chunk times down and has no
// latency between ranks. Its heuristic zero-bubble search is replaced by ours, whose schedules are
// at least as fast.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/text/yaml_map.h"
#include "schedule/catalog.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"

namespace penstock {

// One entry of `schedulers`, generated and priced.
struct PrimusSchedule {
  std::string name;
  // The catalog's algorithm where its closed forms apply, else null: they do not where times are
  // rounded or the order is Primus's own.
  const Algorithm* algorithm = nullptr;
  ScheduleParams params;
  Schedule schedule;  // valid
  Costs costs;        // one entry per stage
};

struct PrimusConfig {
  std::string output_dir;  // empty if the file requests no dumps
  std::vector<PrimusSchedule> schedules;
};

// Whether a configuration is one of Primus's, which have `schedulers`.
bool IsPrimusConfig(const YamlMap& config);

// Errors: kInvalidArgument, naming the key or the scheduler; as Generate.
Result<PrimusConfig> ReadPrimusConfig(const YamlMap& config);

}  // namespace penstock
