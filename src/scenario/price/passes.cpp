#include "scenario/price/passes.h"

#include <algorithm>

#include "base/units.h"
#include "scenario/price/params.h"
#include "schedule/passes/pass_table.h"
#include "schedule/pricing/action_prices.h"
#include "simulate/pass_context.h"

namespace penstock {
namespace {

// "offload=6GiB" is {"offload", "6GiB"}; the second is empty if there is none.
std::pair<std::string, std::string> Split(const std::string& text) {
  const std::size_t equals = std::min(text.find('='), text.size());
  return {text.substr(0, equals), text.substr(std::min(equals + 1, text.size()))};
}

// The pass with a limit in the unit of the costs.
Result<std::string> Converted(const Scenario& scenario, const std::string& text) {
  const auto [name, limit] = Split(text);
  const auto pass = FindSchedulePass(name);
  if (limit.empty() || !pass || (*pass)->arguments != kLimitArgument) return text;
  PENSTOCK_TRY(const double value, LimitOf(scenario, "pass " + name, limit));
  return fmt::format("{}={}", name, value);
}

// The price with a size or time in the unit of the costs.
Result<std::string> ConvertedPrice(const Scenario& scenario, const std::string& text) {
  const auto [key, value] = Split(text);
  if (IsMemoryPrice(key)) {
    if (!ParseBytes(value)) return text;
    PENSTOCK_TRY(const double size, LimitOf(scenario, "price " + key, value));
    return fmt::format("{}={}", key, size);
  }
  auto time = ParseTimeValue(value);
  if (!time) return text;  // ParsePrice refuses what is no time
  time->text = text;
  PENSTOCK_TRY_STATUS(CheckUnit("price", *time, PlainTimeOf(scenario)));
  return fmt::format("{}={}", key, time->value);
}

}  // namespace

Result<PassList> PassesOf(const Scenario& scenario) {
  PassList list;
  for (const std::string& text : scenario.pass) {
    PENSTOCK_TRY(list.passes.emplace_back(), Converted(scenario, text));
  }
  for (const std::string& text : scenario.price) {
    PENSTOCK_TRY(list.prices.emplace_back(), ConvertedPrice(scenario, text));
  }
  return list;
}

bool PassList::Has(std::string_view name) const {
  return std::ranges::any_of(
      passes, [&](std::string_view pass) { return pass.substr(0, pass.find('=')) == name; });
}

std::optional<double> PassList::PriceOf(std::string_view key) const {
  for (const std::string& text : prices) {
    const auto price = ParsePrice(text);
    if (price && price->key == key) return price->value;
  }
  return std::nullopt;
}

Status PassList::SetPrices(const Schedule& schedule, Costs& costs) const {
  return SetActionPrices(prices, schedule, costs);
}

Status PassList::Run(Schedule& schedule, Costs& costs) const {
  for (const std::string& pass : passes) {
    if (pass == "optimizer" && schedule.weights == WeightPolicy::kFlush) {
      costs.steps_wait_for_all = true;
    }
  }
  if (passes.empty()) return {};
  PENSTOCK_TRY(schedule, RunSchedulePasses(std::move(schedule), passes, SimulatedContext(costs)));
  return {};
}

Status ApplyPasses(const Scenario& scenario, Schedule& schedule, Costs& costs) {
  PENSTOCK_TRY(const PassList passes, PassesOf(scenario));
  PENSTOCK_TRY_STATUS(RefuseReduced(passes));
  PENSTOCK_TRY_STATUS(passes.SetPrices(schedule, costs));
  return passes.Run(schedule, costs);
}

Status RefuseReduced(const PassList& passes) {
  if (!passes.PriceOf("reduced")) return {};
  return InvalidParameter("price",
                          "reduced has no effect here: it is a size, and only `collectives` turns "
                          "sizes into times; give the time by `price` reduce");
}

}  // namespace penstock
