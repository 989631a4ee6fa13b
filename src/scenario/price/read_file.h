// A configuration of `penstock simulate`: the fields of a scenario as keys, or a file of Primus's
// simulator (interop/primus/config.h).
//
//   schedule: [1f1b, mine.csv]  names and files, as on the command line; or maps with their own
//                             fields: {schedule: interleaved, chunks: 4}
//   ranks: 8
//   microbatches: 32            ... every field by its name
//   stage_costs:                if stages differ: one entry per stage, instead of `cost`
//     - {forward: 1, backward_input: 1.2, backward_weight: 0.8, activation: 1}
//                             activation: 1.5GiB puts all memory in bytes
//   layer_costs:                the same per layer, for any number of stages (layer_costs.h)
//     - {layers: 32, forward: 1}
//   time_unit: s              if costs are seconds, which tables and pages then show as such
//   sweep:                    values of fields to combine (sweep_axes.h)
//     microbatches: 16..128
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/text/yaml_map.h"
#include "scenario/price/build.h"
#include "scenario/scenario.h"

namespace penstock {

// The schedules of a file of Primus's simulator, which says all about them.
struct PrimusSchedules {
  std::vector<PricedSchedule> schedules;
  std::string output_dir;  // where the file asks for dumps; else empty
};

// Sets the fields that `scenario` leaves open from a configuration's keys, and notes where they
// stand. `path` is in front of these places. Errors name the line and the key.
Status FillFromYaml(const std::string& path, const YamlMap& config, const Purpose& purpose,
                    Scenario& scenario);

// Reads a file: fills the scenario, or returns the schedules if it is one of Primus's. Such a file
// refuses all fields but passes and their prices. Errors begin with the path.
Result<std::optional<PrimusSchedules>> ReadScenarioFile(const std::string& path,
                                                        const Purpose& purpose, Scenario& scenario);

}  // namespace penstock
