#include "simulate/pass_context.h"

#include "simulate/simulate.h"

namespace penstock {

PassContext SimulatedContext(const Costs& costs) {
  return {costs, [costs](const Schedule& schedule) -> Result<Priced> {
            Priced priced;
            PENSTOCK_TRY(const SimulationResult result,
                         Simulate(schedule, costs, {.timeline = &priced.timeline}));
            priced.makespan = result.makespan;
            for (const RankResult& rank : result.ranks) {
              priced.peak_memory.push_back(rank.peak_memory);
            }
            return priced;
          }};
}

}  // namespace penstock
