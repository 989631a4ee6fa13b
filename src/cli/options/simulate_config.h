// The schedules of a command, from its arguments or from a configuration: the command's options
// as keys, or a file of Primus's simulator (interop/primus/config.h).
//
//   schedule: [1f1b, mine.csv]  names and files, as on the command line; or maps with their own
//                             options: {schedule: interleaved, chunks: 4}
//   ranks: 8
//   microbatches: 32            ... every option that shapes or prices, by its long name
//   stage_costs:                if stages differ: one entry per stage, instead of `cost`
//     - {forward: 1, backward_input: 1.2, backward_weight: 0.8, activation: 1}
//                             activation: 1.5GiB puts all memory in bytes
//   layer_costs:                the same per layer, for any number of stages (layer_costs.h)
//     - {layers: 32, forward: 1}
//   time_unit: s              if costs are seconds, which tables and pages then show as such
//   sweep:                    values of options to combine (sweep_axes.h)
//     microbatches: 16..128
//
// Options on the command line take precedence.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/options/schedule_options.h"

namespace penstock {

struct Choice {
  std::vector<ChosenSchedule> schedules;
  std::string output_dir;  // where a file of Primus's simulator requests dumps; else empty
};

// Parses the arguments that name schedules. A configuration among them sets the options that the
// command line leaves open. Returns the schedules if the configuration is one of Primus's: such a
// file determines everything, so it refuses options. Otherwise the schedules are still to be built
// from `options`.
Result<std::optional<Choice>> ReadSources(ScheduleOptions& options);

// Builds every schedule that the parsed sources name, at least one; `primus` is what ReadSources
// returned.
Result<Choice> BuildChoice(const ScheduleOptions& options, std::optional<Choice> primus);

// Parses the sources and builds the schedules.
Result<Choice> ChooseSchedules(ScheduleOptions& options);

}  // namespace penstock
