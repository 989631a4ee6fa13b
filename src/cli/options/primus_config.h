// Configurations of AMD Primus's pipeline simulator (pp_simulation.yaml), taken as they are.
//
//   fwd_time: 1000            of one rank's share of one microbatch; a chunk takes time // vpp_size
//   bwd_time: 1000            backward for input
//   wgrad_time: 1000          backward for weight; a full backward takes both
//   output_dir: ./result      gets NAME/pp_rank_N.json of every scheduler
//   schedulers:
//     - name: v-half
//       class: primus.core.pipeline_parallel.scheduler.algorithms.zbv_greedy.ScheduleZBVGreedy
//       pp_size: 8
//       vpp_size: 2
//       micro_batches: 32
//       memory_config: half
//
// `chunk_time_ms` (by rank and chunk: fwd, bwd, wgrad, activation) stands for the three times. The
// end of a class path says the algorithm; without `class` the name does, in Primus's words or ours.
// Makespans are those of Primus's simulator, which rounds chunk times down and knows no latency
// between ranks; its heuristic zero-bubble search is replaced by ours, which is as fast or faster.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/yaml_map.h"
#include "cli/options/schedule_options.h"

namespace penstock {

struct PrimusConfig {
  std::string output_dir;  // empty: no dumps are asked for
  std::vector<ChosenSchedule> schedules;
};

// Whether a configuration is one of Primus's: it has `schedulers`.
bool IsPrimusConfig(const YamlMap& config);

Result<PrimusConfig> ReadPrimusConfig(const YamlMap& config);

}  // namespace penstock
