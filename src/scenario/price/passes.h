// The passes of a scenario, and the prices of the actions that they add.
//
// Errors: kInvalidArgument about `pass` or `price`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "scenario/scenario.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"

namespace penstock {

// Passes and prices with all limits, sizes and times in the unit of the costs.
struct PassList {
  std::vector<std::string> passes;  // NAME[=ARGUMENTS], in order
  std::vector<std::string> prices;  // KEY=VALUE

  // Whether a pass of this name is in the list.
  bool Has(std::string_view name) const;
  // Returns the value of a price, if it is given and valid.
  std::optional<double> PriceOf(std::string_view key) const;
  // Sets the prices in the schedule's costs.
  Status SetPrices(const Schedule& schedule, Costs& costs) const;
  // Runs the passes with these costs.
  Status Run(Schedule& schedule, Costs& costs) const;
};

Result<PassList> PassesOf(const Scenario& scenario);

// Sets the prices of the scenario and runs its passes, where no collectives are described.
Status ApplyPasses(const Scenario& scenario, Schedule& schedule, Costs& costs);

// Refuses a price that only `collectives` turns into a time.
Status RefuseReduced(const PassList& passes);

}  // namespace penstock
