#include "schedule/pairs.h"

#include <algorithm>

namespace penstock {

bool HasPairs(const Schedule& schedule) {
  return std::ranges::any_of(schedule.lanes, [](const Lane& lane) {
    return std::ranges::any_of(lane, [](const Action& action) { return action.is_pair(); });
  });
}

}  // namespace penstock
