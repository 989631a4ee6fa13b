#include "schedule/pricing/action_prices.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/text/nearest.h"
#include "base/text/numbers.h"
#include "base/text/quote.h"

namespace penstock {
namespace {

using enum PricePer;

std::string Meaning(std::string_view meaning, PricePer per, std::string_view otherwise) {
  std::string text(meaning);
  if (per == kRank) text += ", per rank";
  if (per == kRankAndMicrobatch) text += ", per rank and microbatch";
  if (per == kStageAndMicrobatch) text += ", per stage and microbatch";
  if (per == kMicrobatch) text += ", per microbatch";
  if (!otherwise.empty()) text += fmt::format(" (default: as {})", otherwise);
  return text;
}

const StageCost* Row(double StageCosts::*value) {
  const auto* found = std::ranges::find(kStageCosts, value, &StageCost::value);
  return value && found != std::end(kStageCosts) ? found : nullptr;
}

PriceKey KeyOf(const StageCost& cost) {
  const StageCost* otherwise = Row(cost.otherwise);
  const std::string_view default_key = otherwise ? otherwise->price.key : std::string_view();
  return {
      .name = cost.price.key,
      .meaning = Meaning(cost.meaning, cost.price.per,
                         otherwise ? (default_key.empty() ? otherwise->name : default_key) : ""),
      .per = cost.price.per,
      .is_memory = cost.is_memory(),
      .of_stage = cost.value,
      .otherwise = default_key};
}

std::vector<PriceKey> MakePriceKeys() {
  std::vector<PriceKey> keys;
  for (const StageCost& cost : kStageCosts) {
    if (!cost.price.key.empty()) keys.push_back(KeyOf(cost));
  }
  const auto add = [&keys](std::string_view name, std::string_view meaning, PricePer per,
                           bool is_memory, double Costs::*of_all, std::string_view otherwise) {
    keys.push_back({.name = name,
                    .meaning = Meaning(meaning, per, otherwise),
                    .per = per,
                    .is_memory = is_memory,
                    .of_all = of_all,
                    .otherwise = otherwise});
  };
  add("reduced", "size of the reduced gradients, for collectives", kRank, true, nullptr,
      "gathered");
  add("offload", "time to offload the activations of one rank and microbatch", kAll, false,
      &Costs::offload, "");
  add("reload", "time to reload them", kAll, false, &Costs::reload, "offload");
  add("exchange", "latency of an exchange among all ranks after EMBED or S", kAll, false,
      &Costs::exchange, "comm");
  return keys;
}

const PriceKey* FindPriceKey(std::string_view name) {
  const auto keys = PriceKeys();
  const auto found = std::ranges::find(keys, name, &PriceKey::name);
  return found == keys.end() ? nullptr : &*found;
}

void SetPrice(const PriceKey& key, double price, const Schedule& schedule, Costs& costs) {
  if (key.of_all) costs.*key.of_all = price;
  if (!key.of_stage) return;
  if (key.per == kRank || key.per == kRankAndMicrobatch) price *= 1.0 / schedule.placement.chunks();
  if (key.per == kRankAndMicrobatch || key.per == kStageAndMicrobatch) price /= schedule.slices;
  costs.ForEachStage([&](StageCosts& stage) {
    stage.*key.of_stage = key.per == kRank ? price : price * stage.length;
  });
}

}  // namespace

std::span<const PriceKey> PriceKeys() {
  static const std::vector<PriceKey> keys = MakePriceKeys();
  return keys;
}

bool IsMemoryPrice(std::string_view name) {
  const PriceKey* key = FindPriceKey(name);
  return key && key->is_memory;
}

Result<ActionPrice> ParsePrice(const std::string& text) {
  const std::size_t equals = std::min(text.find('='), text.size());
  const std::string key = text.substr(0, equals);
  if (!FindPriceKey(key)) {
    std::vector<std::string_view> keys;
    for (const PriceKey& known : PriceKeys()) keys.push_back(known.name);
    return InvalidParameter(
        "price", "{}: no price is called {}; {}", Quote(text), Quote(key),
        DidYouMean(key, keys, fmt::format("the keys are {}", fmt::join(keys, ", "))));
  }
  const auto value = ParseNumber(text.substr(std::min(equals + 1, text.size())));
  if (!value) return InvalidParameter("price", "{}: give {}=NUMBER", Quote(text), key);
  const Status status = IsMemoryPrice(key) ? CheckMemory(*value) : CheckTime(*value);
  if (!status) return InvalidParameter("price", "{}: {}", Quote(text), status.error().line());
  return ActionPrice{key, *value};
}

Status SetActionPrices(std::span<const std::string> prices, const Schedule& schedule,
                       Costs& costs) {
  std::map<std::string, double, std::less<>> given;
  for (const std::string& text : prices) {
    PENSTOCK_TRY(const ActionPrice price, ParsePrice(text));
    if (!given.insert({price.key, price.value}).second) {
      return InvalidParameter("price", "{} is given twice", price.key);
    }
  }
  costs.exchange = costs.comm;
  for (const PriceKey& key : PriceKeys()) {
    const auto own = given.find(key.name);
    const auto price = own == given.end() ? given.find(key.otherwise) : own;
    if (price != given.end()) SetPrice(key, price->second, schedule, costs);
  }
  return {};
}

}  // namespace penstock
