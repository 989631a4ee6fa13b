#include "interop/primus/dump_costs.h"

#include <algorithm>

#include "base/index.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

// The costs of each microbatch index, by stage, if they differ.
constexpr const char* kByIndex = "index_costs";

Result<double> ReadNumber(const Json& object, std::string_view key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) {
    return InvalidArgument("{} is not a number", key);
  }
  return found->get<double>();
}

Result<double> Checked(const Json& object, const char* key, Status (*check)(double)) {
  PENSTOCK_TRY(const double value, ReadNumber(object, key));
  if (const Status status = check(value); !status) {
    return tl::unexpected(In(key, status.error()));
  }
  return value;
}

nlohmann::ordered_json ListToJson(const std::vector<StageCosts>& list) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const StageCosts& stage : list) {
    nlohmann::ordered_json& object = array.emplace_back(nlohmann::ordered_json::object());
    for (const StageCost& cost : kStageCosts) {
      if (cost.IsNeeded(stage)) object[cost.name] = stage.*cost.value;
    }
  }
  return array;
}

// Costs that an entry lacks have their defaults; earlier versions wrote fewer.
Result<std::vector<StageCosts>> ListFromJson(const Json& list) {
  std::vector<StageCosts> read;
  for (const Json& object : list) {
    StageCosts& stage = read.emplace_back();
    for (const StageCost& cost : kStageCosts) {
      stage.*cost.value = cost.Default(stage);
      if (!object.contains(cost.name) && !cost.always_given()) continue;
      PENSTOCK_TRY(stage.*cost.value, ReadNumber(object, cost.name));
    }
    if (const Status status = CheckStage(stage); !status) return tl::unexpected(status.error());
  }
  return read;
}

nlohmann::ordered_json OverlapToJson(const OverlapRule& rule) {
  switch (rule.kind) {
    case OverlapRule::Kind::kMax:
      return "max";
    case OverlapRule::Kind::kSum:
      return "sum";
    case OverlapRule::Kind::kFactor:
      return rule.factor;
  }
  return "max";
}

Result<OverlapRule> OverlapFromJson(const Json& object) {
  const auto found = object.find("overlap");
  if (found != object.end() && *found == "max") return OverlapRule{OverlapRule::Kind::kMax, 1};
  if (found != object.end() && *found == "sum") return OverlapRule{OverlapRule::Kind::kSum, 1};
  PENSTOCK_TRY(const double factor, Checked(object, "overlap", CheckTime));
  return OverlapRule{OverlapRule::Kind::kFactor, factor};
}

}  // namespace

std::vector<double> LastEnds(const Schedule& schedule, const Timeline& timeline) {
  std::vector<double> ends;
  for (std::size_t rank = 0; rank < schedule.lanes.size(); ++rank) {
    double& end = ends.emplace_back(0);
    for (std::size_t i = 0; i < schedule.lanes[rank].size(); ++i) {
      if (IsCompute(schedule.lanes[rank][i])) end = std::max(end, timeline.spans[rank][i].end);
    }
  }
  return ends;
}

nlohmann::ordered_json CostsToJson(const DumpCosts& dump) {
  const Costs& costs = dump.costs;
  nlohmann::ordered_json json = {{"comm", costs.comm},
                                 {"overlap", OverlapToJson(costs.overlap)},
                                 {"message_bytes", costs.message_bytes},
                                 {"memory_unit", dump.memory_unit},
                                 {"last_ends", dump.last_ends},
                                 {"stage_costs", ListToJson(costs.stages)}};
  if (!costs.by_slice.empty()) json[kByIndex] = ListToJson(costs.by_slice);
  return json;
}

Result<DumpCosts> CostsFromJson(const Json& json, int stages) {
  if (!json.is_object()) return InvalidArgument("it is not an object");
  DumpCosts read;
  PENSTOCK_TRY(read.costs.comm, Checked(json, "comm", CheckTime));
  PENSTOCK_TRY(read.costs.overlap, OverlapFromJson(json));
  PENSTOCK_TRY(read.costs.message_bytes, Checked(json, "message_bytes", CheckMemory));
  const auto unit = json.find("memory_unit");
  if (unit != json.end() && unit->is_string()) read.memory_unit = unit->get<std::string>();
  if (unit == json.end() || !unit->is_string() ||
      (read.memory_unit != "B" && !read.memory_unit.empty())) {
    return InvalidArgument("memory_unit must be \"B\" or empty");
  }
  for (const Json& end : json.value("last_ends", Json::array())) {
    if (!end.is_number()) return InvalidArgument("last_ends has an entry that is not a number");
    read.last_ends.push_back(end.get<double>());
  }
  const auto list = json.find("stage_costs");
  if (list == json.end() || !list->is_array() || list->size() != Index(stages)) {
    return InvalidArgument("stage_costs is not a list of {} stages", stages);
  }
  PENSTOCK_TRY(read.costs.stages, ListFromJson(*list));
  const auto by_index = json.find(kByIndex);
  if (by_index == json.end()) return read;
  if (!by_index->is_array() || by_index->size() % Index(stages) != 0) {
    return InvalidArgument("{} is not a list of equally many entries for {} stages", kByIndex,
                           stages);
  }
  PENSTOCK_TRY(read.costs.by_slice, ListFromJson(*by_index));
  return read;
}

}  // namespace penstock
