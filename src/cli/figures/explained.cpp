#include "cli/figures/explained.h"

#include "explain/critical_path.h"

namespace penstock {

std::vector<std::vector<Bubble>> BubblesOf(const Simulated& simulated) {
  const ChosenSchedule& chosen = simulated.chosen;
  const ActionInputs inputs(chosen.schedule, simulated.timeline, simulated.messages);
  std::optional<MemoryBound> bound;
  if (chosen.memory_limit) bound.emplace(MemoryBound{chosen.costs, *chosen.memory_limit});
  return FindBubbles(chosen.schedule, simulated.timeline, inputs, bound);
}

std::vector<ActionAt> CriticalPathOf(const Simulated& simulated) {
  const Schedule& schedule = simulated.chosen.schedule;
  const ActionInputs inputs(schedule, simulated.timeline, simulated.messages);
  return CriticalPath(schedule, simulated.timeline, inputs);
}

}  // namespace penstock
