// The file of `penstock simulate CONFIG.yaml`: the command's options as keys, or a configuration of
// Primus's simulator (see primus_config.h).
//
//   schedule: [1f1b, zb-h1]     or csv: FILE
//   ranks: 8
//   microbatches: 32            ... every option that shapes or prices, by its long name
//   stage_costs:                where stages differ, one entry a stage in place of `cost`
//     - {forward: 1, backward_input: 1.2, backward_weight: 0.8, activation: 1}
//                             activation: 1.5GiB puts all memory in bytes
//
// What the command line gives wins.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "cli/primus_config.h"
#include "cli/schedule_options.h"

namespace penstock {

// Fills what `options` leaves open; or, for one of Primus's files, gives its schedules: then
// `options` must leave open all that the file says.
Result<std::optional<PrimusConfig>> LoadSimulateConfig(const std::string& path,
                                                       ScheduleOptions& options);

}  // namespace penstock
