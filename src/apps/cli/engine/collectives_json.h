// What collectives move, as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "collective/collective_count.h"

namespace penstock {

inline nlohmann::ordered_json ToJson(const std::vector<CollectiveCount>& counts) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const CollectiveCount& each : counts) {
    list.push_back(
        {{"op", each.op}, {"group", each.group}, {"calls", each.calls}, {"bytes", each.bytes}});
  }
  return list;
}

}  // namespace penstock
