// The schedules of the catalog that a plan may choose.
#pragma once

#include <string>
#include <vector>

#include "schedule/catalog.h"

namespace penstock {

struct NamedSchedule {
  std::string name;  // with its options
  const Algorithm* algorithm = nullptr;
  ScheduleParams params;  // checked
};

// Returns every schedule of the catalog with a flush, for each number of chunks and each of its own
// options, without a memory limit. zb-auto and v-auto are left out.
std::vector<NamedSchedule> NamedSchedules(const ScheduleParams& params,
                                          const std::vector<int>& chunks);

}  // namespace penstock
