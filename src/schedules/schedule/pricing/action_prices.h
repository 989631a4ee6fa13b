// Prices of the actions that passes add, as users write them: KEY=VALUE.
//
// Errors: kInvalidArgument; about the parameter `price`.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"

namespace penstock {

struct PriceKey {
  std::string_view name;
  std::string meaning;
  PricePer per = PricePer::kAll;
  bool is_memory = false;
  double StageCosts::*of_stage = nullptr;
  double Costs::*of_all = nullptr;
  std::string_view otherwise = {};  // the key whose price it has if it is not given
};

// Returns the prices of the table of stage costs, and the prices that belong to no stage.
std::span<const PriceKey> PriceKeys();

// Whether the key prices memory instead of time.
bool IsMemoryPrice(std::string_view name);

struct ActionPrice {
  std::string key;
  double value = 0;
};
// Reads "KEY=VALUE".
Result<ActionPrice> ParsePrice(const std::string& text);

// Sets the prices in the schedule's costs, and what follows from others where none is given.
Status SetActionPrices(std::span<const std::string> prices, const Schedule& schedule, Costs& costs);

}  // namespace penstock
