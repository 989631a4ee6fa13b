// A schedule with the times of its actions, simulated or measured. It never changes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "schedule/costs.h"
#include "schedule/schedule.h"
#include "schedule/sent_message.h"
#include "schedule/timeline.h"
#include "simulate/simulate.h"

namespace penstock::python {

struct Run {
  std::shared_ptr<const Schedule> schedule;
  std::optional<Costs> costs;  // a measured run may have none
  Timeline timeline;
  SimulationResult result;
  std::vector<SentMessage> messages;  // of a measured run unknown
  std::string time_unit, memory_unit;
};

}  // namespace penstock::python
