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
constexpr PriceKey kPrices[] = {
    {"recompute", "time of RECOMPUTE for one rank and microbatch (default F)", kRankAndMicrobatch,
     false, &StageCosts::recompute},
    {"step", "time of a STEP of one rank", kRank, false, &StageCosts::step},
    {"unshard", "time of the all-gather of one rank's share of the model", kRank, false,
     &StageCosts::unshard},
    {"reduce", "time of the reduction of one rank's gradients", kRank, false, &StageCosts::reduce},
    {"offload", "time to offload the activations of one rank and microbatch", kAll, false, nullptr,
     &Costs::offload},
    {"reload", "time to reload them (default: as offload)", kAll, false, nullptr, &Costs::reload,
     "offload"},
    {"input", "memory that stays held of recomputed activations, per rank and microbatch",
     kStageAndMicrobatch, true, &StageCosts::input_activation},
    {"gathered", "memory of one rank's all-gathered weights", kRank, true, &StageCosts::gathered},
    {"reduced", "size of one rank's reduced gradients, for collectives (default: as gathered)",
     kRank, true},
    {"s", "time of S: logits of one rank's share of the vocabulary, and their gradient",
     kMicrobatch, false, &StageCosts::vocabulary_input},
    {"t", "time of T: gradient of one rank's share of the head", kMicrobatch, false,
     &StageCosts::vocabulary_weight},
    {"embed", "time of EMBED for one rank and microbatch", kMicrobatch, false, &StageCosts::embed},
    {"embed-grad", "time of EMBED_GRAD (default: as EMBED)", kMicrobatch, false,
     &StageCosts::embed_gradient, nullptr, "embed"},
    {"exchange", "latency of an exchange among all ranks after EMBED or S (default: comm)", kAll,
     false, nullptr, &Costs::exchange},
    {"softmax", "memory from S to T, per rank and microbatch", kMicrobatch, true,
     &StageCosts::softmax},
    {"weights", "memory of one rank's weights (simulate --memory)", kRank, true,
     &StageCosts::weights},
    {"version", "memory of each older version of them (default: as weights)", kRank, true,
     &StageCosts::version, nullptr, "weights"},
    {"gradients", "memory of one rank's gradients", kRank, true, &StageCosts::gradients},
    {"optimizer", "memory of one rank's optimizer state", kRank, true, &StageCosts::optimizer},
    {"workspace", "temporary memory of F, I, W and B", kMicrobatch, true, &StageCosts::workspace}};

const PriceKey* FindPriceKey(std::string_view name) {
  const auto* found = std::ranges::find(kPrices, name, &PriceKey::name);
  return found == std::end(kPrices) ? nullptr : found;
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

std::span<const PriceKey> PriceKeys() { return kPrices; }

bool IsMemoryPrice(std::string_view name) {
  const PriceKey* key = FindPriceKey(name);
  return key && key->is_memory;
}

Result<ActionPrice> ParsePrice(const std::string& text) {
  const std::size_t equals = std::min(text.find('='), text.size());
  const std::string key = text.substr(0, equals);
  if (!FindPriceKey(key)) {
    std::vector<std::string_view> keys;
    for (const PriceKey& known : kPrices) keys.push_back(known.name);
    return InvalidArgument(
        "price {}: no price is called {}; {}", Quote(text), Quote(key),
        DidYouMean(key, keys, fmt::format("the keys are {}", fmt::join(keys, ", "))));
  }
  const auto value = ParseNumber(text.substr(std::min(equals + 1, text.size())));
  if (!value) return InvalidArgument("price {}: give {}=NUMBER", Quote(text), key);
  const Status status = IsMemoryPrice(key) ? CheckMemory(*value) : CheckTime(*value);
  if (!status) return InvalidArgument("price {}: {}", Quote(text), status.error().line());
  return ActionPrice{key, *value};
}

Status SetActionPrices(std::span<const std::string> prices, const Schedule& schedule,
                       Costs& costs) {
  std::map<std::string, double, std::less<>> given;
  for (const std::string& text : prices) {
    PENSTOCK_TRY(const ActionPrice price, ParsePrice(text));
    if (!given.insert({price.key, price.value}).second) {
      return InvalidArgument("price {} is given twice", price.key);
    }
  }
  costs.exchange = costs.comm;
  for (const PriceKey& key : kPrices) {
    const auto own = given.find(key.name);
    const auto price = own == given.end() ? given.find(key.otherwise) : own;
    if (price != given.end()) SetPrice(key, price->second, schedule, costs);
  }
  return {};
}

}  // namespace penstock
