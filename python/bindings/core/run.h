// A schedule with the times of its actions, simulated or measured. It never changes.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "schedule/costs.h"
#include "schedule/schedule.h"
#include "schedule/sent_message.h"
#include "schedule/timeline.h"
#include "simulate/simulate.h"

namespace penstock::python {

class Run {
 public:
  std::shared_ptr<const Schedule> schedule;
  std::optional<Costs> costs;  // a measured run may have none
  SimulationResult result;
  std::string time_unit, memory_unit;
  bool measured = false;
  Timeline measured_times;

  // The times and messages of a simulated run are found when they are first asked for: a search
  // over schedules needs neither, and they take longer than the simulation.
  // Threads: any, with or without the GIL.
  const Timeline& timeline() const;
  const std::vector<SentMessage>& messages() const;  // of a measured run unknown: empty

 private:
  mutable std::once_flag timeline_found_, messages_found_;
  mutable Timeline timeline_;
  mutable std::vector<SentMessage> messages_;
};

}  // namespace penstock::python
