// The options that transform a generated schedule, and the prices of what they add.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"

namespace penstock {

struct PassOptions {
  std::vector<std::string> passes;  // --pass NAME[=ARGUMENTS], in order
  std::vector<std::string> prices;  // --price KEY=VALUE

  // --pass and --price.
  void Define(CLI::App& app);
  // Returns these options with the limits of passes in the unit of the costs: `limit` converts the
  // text given to a pass.
  Result<PassOptions> WithLimits(
      const std::function<Result<double>(const std::string& pass, const std::string& text)>& limit)
      const;
  // Sets the prices in the schedule's costs, then runs the passes.
  Status Apply(Schedule& schedule, Costs& costs) const;

 private:
  Status SetPrices(const Placement& placement, int slices, Costs& costs) const;
};

// The passes and prices that --pass and --price accept.
std::string PassesText();
nlohmann::ordered_json PassesJson();

}  // namespace penstock
