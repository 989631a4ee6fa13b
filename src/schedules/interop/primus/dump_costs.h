// The file of a dump with its costs, which Primus's format does not include.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "schedule/costs.h"
#include "schedule/timeline.h"

namespace penstock {

inline constexpr const char* kDumpCostsFile = "penstock.json";

struct DumpCosts {
  Costs costs;
  std::string memory_unit;  // bytes ("B"), or activations (empty)
  // The end of each rank's last action. It identifies the run, because Primus may overwrite the
  // other files of the folder.
  std::vector<double> last_ends;
};

std::vector<double> LastEnds(const Schedule& schedule, const Timeline& timeline);

nlohmann::ordered_json CostsToJson(const DumpCosts& costs);
// Reads the output of CostsToJson. Errors: kInvalidArgument, naming the key, for unexpected
// contents or another number of stages.
Result<DumpCosts> CostsFromJson(const nlohmann::json& json, int stages);

}  // namespace penstock
