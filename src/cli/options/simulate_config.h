// The schedules that a command is given, by its words or in a configuration: the command's options
// as keys, or a file of Primus's simulator (see primus_config.h).
//
//   schedule: [1f1b, mine.csv]  names and files, as on the command line; or maps with options of
//                             their own: {schedule: interleaved, chunks: 4}
//   ranks: 8
//   microbatches: 32            ... every option that shapes or prices, by its long name
//   stage_costs:                where stages differ, one entry a stage in place of `cost`
//     - {forward: 1, backward_input: 1.2, backward_weight: 0.8, activation: 1}
//                             activation: 1.5GiB puts all memory in bytes
//   layer_costs:                the same of layers, for any number of stages (layer_costs.h)
//     - {layers: 32, forward: 1}
//
// What the command line gives wins.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/options/primus_config.h"
#include "cli/options/schedule_options.h"

namespace penstock {

struct Choice {
  std::vector<ChosenSchedule> schedules;
  std::string output_dir;  // where one of Primus's files asks for dumps; else empty
};

// Reads the words that name schedules, and the configuration among them, which fills what `options`
// leaves open. Returns the schedules of one of Primus's files, which says everything itself:
// `options` must leave open all that the file says.
Result<std::optional<PrimusConfig>> ReadSources(ScheduleOptions& options);

// Reads the sources and builds every schedule that they name; at least one.
Result<Choice> ChooseSchedules(ScheduleOptions& options);

}  // namespace penstock
