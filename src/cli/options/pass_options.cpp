#include "cli/options/pass_options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/text/nearest.h"
#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "base/units.h"
#include "cli/help.h"
#include "cli/offered_values.h"
#include "simulate/pass_context.h"

namespace penstock {
namespace {

// What a price is for. A stage costs a part of it at each microbatch index. The input of a stage is
// as large as that of a whole rank.
enum class Per { kAll, kRank, kRankAndMicrobatch, kStageAndMicrobatch, kMicrobatch };

struct PriceKey {
  std::string_view name, meaning;
  Per per = Per::kAll;
  bool is_memory = false;
  double StageCosts::*of_stage = nullptr;
  double Costs::*of_all = nullptr;
  std::string_view otherwise = {};  // the key whose price it has if it is not given
};
using enum Per;
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

bool IsMemory(std::string_view name) {
  const PriceKey* key = FindPriceKey(name);
  return key && key->is_memory;
}

struct Price {
  std::string key;
  double value = 0;
};

Result<Price> ParsePrice(const std::string& text) {
  const std::size_t equals = std::min(text.find('='), text.size());
  const std::string key = text.substr(0, equals);
  if (!FindPriceKey(key)) {
    std::vector<std::string_view> keys;
    for (const PriceKey& known : kPrices) keys.push_back(known.name);
    return InvalidArgument(
        "--price {}: no price is called {}; {}", Quote(text), Quote(key),
        DidYouMean(key, keys, fmt::format("the keys are {}", fmt::join(keys, ", "))));
  }
  const auto value = ParseNumber(text.substr(std::min(equals + 1, text.size())));
  if (!value) return InvalidArgument("--price {}: give {}=NUMBER", Quote(text), key);
  const Status status = IsMemory(key) ? CheckMemory(*value) : CheckTime(*value);
  if (!status) return InvalidArgument("--price {}: {}", Quote(text), status.error().message);
  return Price{key, *value};
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

OfferedValues OfferedPasses() {
  OfferedValues offered;
  for (const SchedulePass& pass : SchedulePasses()) {
    offered.values.push_back({std::string(pass.name), std::string(pass.summary)});
  }
  return offered;
}

OfferedValues OfferedPrices() {
  OfferedValues offered;
  for (const PriceKey& key : kPrices) {
    offered.values.push_back({fmt::format("{}=", key.name), std::string(key.meaning)});
  }
  return offered;
}

}  // namespace

void PassOptions::Define(CLI::App& app) {
  app.option_defaults()->group("Passes");
  // Without extra arguments: in 'show --pass overlap 1f1b' the last argument is the schedule.
  Offer(app.add_option(
               "--pass", passes,
               "Transform the schedule by passes, in this order ('penstock schedules --passes' "
               "lists them); commas separate several")
            ->delimiter(',')
            ->allow_extra_args(false)
            ->type_name("PASS"),
        OfferedPasses);
  Offer(
      app.add_option("--price", prices,
                     "Costs of actions that passes add (listed there too); commas separate several")
          ->delimiter(',')
          ->allow_extra_args(false)
          ->type_name("KEY=X"),
      OfferedPrices);
}

std::string PassesText() {
  std::string text = "Passes (--pass NAME[=ARGUMENTS]):\n";
  for (const SchedulePass& pass : SchedulePasses()) {
    const std::string_view equals = pass.arguments.empty() ? "" : "=";
    text += HelpEntry(fmt::format("{}{}{}", pass.name, equals, pass.arguments), pass.summary);
  }
  text += "\nPrices (--price KEY=X), in the units of --cost and of memory, 0 by default:\n";
  for (const PriceKey& key : kPrices) text += HelpEntry(std::string(key.name), key.meaning);
  return text;
}

nlohmann::ordered_json PassesJson() {
  nlohmann::ordered_json passes = nlohmann::ordered_json::array();
  for (const SchedulePass& pass : SchedulePasses()) {
    passes.push_back(
        {{"name", pass.name}, {"arguments", pass.arguments}, {"summary", pass.summary}});
  }
  nlohmann::ordered_json prices = nlohmann::ordered_json::array();
  for (const PriceKey& key : kPrices) {
    prices.push_back({{"key", key.name}, {"meaning", key.meaning}});
  }
  return {{"passes", std::move(passes)}, {"prices", std::move(prices)}};
}

Status PassOptions::SetPrices(const Schedule& schedule, Costs& costs) const {
  std::map<std::string, double, std::less<>> given;
  for (const std::string& text : prices) {
    PENSTOCK_TRY(const Price price, ParsePrice(text));
    if (!given.insert({price.key, price.value}).second) {
      return InvalidArgument("--price {} is given twice", price.key);
    }
  }
  costs.ForEachStage([](StageCosts& stage) {
    if (stage.recompute == 0) stage.recompute = stage.forward;
  });
  costs.exchange = costs.comm;
  for (const PriceKey& key : kPrices) {
    const auto own = given.find(key.name);
    const auto price = own == given.end() ? given.find(key.otherwise) : own;
    if (price != given.end()) SetPrice(key, price->second, schedule, costs);
  }
  return {};
}

Result<PassOptions> PassOptions::WithLimits(
    const std::function<Result<double>(const std::string&, const std::string&)>& limit) const {
  PassOptions converted = *this;
  for (std::string& text : converted.passes) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals + 1 == text.size()) continue;
    const std::string name = text.substr(0, equals);
    const auto pass = FindSchedulePass(name);
    if (!pass || (*pass)->arguments != kLimitArgument) continue;
    PENSTOCK_TRY(const double value, limit("--pass " + name, text.substr(equals + 1)));
    text = fmt::format("{}={}", name, value);
  }
  for (std::string& text : converted.prices) {
    const std::size_t equals = std::min(text.find('='), text.size());
    const std::string key = text.substr(0, equals);
    const std::string size = text.substr(std::min(equals + 1, text.size()));
    if (!IsMemory(key) || !ParseBytes(size)) continue;
    PENSTOCK_TRY(const double value, limit("--price " + key, size));
    text = fmt::format("{}={}", key, value);
  }
  return converted;
}

std::optional<double> PassOptions::PriceOf(std::string_view key) const {
  for (const std::string& text : prices) {
    const auto price = ParsePrice(text);
    if (price && price->key == key) return price->value;
  }
  return std::nullopt;
}

Status PassOptions::RefuseReduced() const {
  if (!PriceOf("reduced")) return {};
  return InvalidArgument(
      "--price reduced has no effect here: it is a size, whose time only the key collectives of a "
      "configuration gives; give the time by --price reduce");
}

Status PassOptions::Apply(Schedule& schedule, Costs& costs) const {
  PENSTOCK_TRY_STATUS(RefuseReduced());
  PENSTOCK_TRY_STATUS(SetPrices(schedule, costs));
  return Run(schedule, costs);
}

Status PassOptions::Run(Schedule& schedule, Costs& costs) const {
  for (const std::string& pass : passes) {
    if (pass == "optimizer" && schedule.weights == WeightPolicy::kFlush) {
      costs.steps_wait_for_all = true;
    }
  }
  if (passes.empty()) return {};
  PENSTOCK_TRY(schedule, RunSchedulePasses(std::move(schedule), passes, SimulatedContext(costs)));
  return {};
}

}  // namespace penstock
