// The file of a dump that holds its costs, for which Primus's form has no place.
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
  // When each rank's last action ends: says which run the file belongs to, since Primus may write
  // its files over ours.
  std::vector<double> last_ends;
};

std::vector<double> LastEnds(const Schedule& schedule, const Timeline& timeline);

nlohmann::ordered_json CostsToJson(const DumpCosts& costs);
// Reads what CostsToJson wrote. Errors: kInvalidArgument, naming the key, for anything else and for
// another number of stages.
Result<DumpCosts> CostsFromJson(const nlohmann::json& json, int stages);

}  // namespace penstock
