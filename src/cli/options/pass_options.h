// The options that transform a generated schedule, and the prices of what they add.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/options/time_option.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"

namespace penstock {

struct PassOptions {
  std::vector<std::string> passes;  // --pass NAME[=ARGUMENTS], in order
  std::vector<std::string> prices;  // --price KEY=VALUE

  // --pass and --price.
  void Define(CLI::App& app);
  // Returns these options with the limits of passes, and sizes of prices, in the unit of the costs:
  // `limit` converts the text given to an option.
  Result<PassOptions> WithLimits(
      const std::function<Result<double>(const std::string& option, const std::string& text)>&
          limit) const;
  // Returns these options with the times of prices in the unit of the costs.
  Result<PassOptions> WithTimes(PlainTime plain) const;
  // Returns the value of a price, if it is given and valid.
  std::optional<double> PriceOf(std::string_view key) const;
  // Sets the prices in the schedule's costs.
  Status SetPrices(const Schedule& schedule, Costs& costs) const;
  // Runs the passes with these costs.
  Status Run(Schedule& schedule, Costs& costs) const;
  // Refuses --price reduced without `collectives`.
  Status RefuseReduced() const;
  // Sets the prices and runs the passes, without collectives.
  Status Apply(Schedule& schedule, Costs& costs) const;
};

// The passes and prices that --pass and --price accept.
std::string PassesText();
nlohmann::ordered_json PassesJson();

}  // namespace penstock
