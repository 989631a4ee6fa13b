#include "cli/options/pass_options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/text/nearest.h"
#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "base/units.h"
#include "cli/help.h"
#include "simulate/pass_context.h"

namespace penstock {
namespace {

struct PriceKey {
  std::string_view name, meaning;
};
constexpr PriceKey kPrices[] = {
    {"recompute", "time of RECOMPUTE for one rank and microbatch (default F)"},
    {"step", "time of a STEP of one rank"},
    {"unshard", "time of the all-gather of one rank's share of the model"},
    {"reduce", "time of the reduction of one rank's gradients"},
    {"offload", "time to offload the activations of one rank and microbatch"},
    {"reload", "time to reload them (default: as offload)"},
    {"input", "memory that stays held of recomputed activations, per rank and microbatch"},
    {"gathered", "memory of one rank's all-gathered weights"},
    {"reduced", "size of one rank's reduced gradients, for collectives (default: as gathered)"},
    {"s", "time of S: logits of one rank's share of the vocabulary, and their gradient"},
    {"t", "time of T: gradient of one rank's share of the head"},
    {"embed", "time of EMBED for one rank and microbatch"},
    {"embed-grad", "time of EMBED_GRAD (default: as EMBED)"},
    {"exchange", "latency of an exchange among all ranks after EMBED or S (default: comm)"},
    {"softmax", "memory from S to T, per rank and microbatch"},
    {"weights", "memory of one rank's weights (simulate --memory)"},
    {"version", "memory of each older version of them (default: as weights)"},
    {"gradients", "memory of one rank's gradients"},
    {"optimizer", "memory of one rank's optimizer state"},
    {"workspace", "temporary memory of F, I, W and B"}};
constexpr std::string_view kMemoryPrices[] = {"input",     "gathered",  "reduced",
                                              "softmax",   "weights",   "version",
                                              "gradients", "optimizer", "workspace"};

std::vector<std::string_view> PriceKeys() {
  std::vector<std::string_view> keys;
  for (const PriceKey& key : kPrices) keys.push_back(key.name);
  return keys;
}

bool IsMemory(std::string_view key) {
  return std::ranges::find(kMemoryPrices, key) != std::end(kMemoryPrices);
}

struct Price {
  std::string key;
  double value = 0;
};

Result<Price> ParsePrice(const std::string& text) {
  const std::size_t equals = std::min(text.find('='), text.size());
  const std::string key = text.substr(0, equals);
  const std::vector<std::string_view> keys = PriceKeys();
  if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
    return InvalidArgument(
        "--price {}: {}", Quote(text),
        DidYouMean(key, keys, fmt::format("the keys are {}", fmt::join(keys, ", "))));
  }
  const auto value = ParseNumber(text.substr(std::min(equals + 1, text.size())));
  if (!value) return InvalidArgument("--price {}: give {}=NUMBER", Quote(text), key);
  const Status status = IsMemory(key) ? CheckMemory(*value) : CheckTime(*value);
  if (!status) return InvalidArgument("--price {}: {}", Quote(text), status.error().message);
  return Price{key, *value};
}

}  // namespace

void PassOptions::Define(CLI::App& app) {
  app.option_defaults()->group("Passes");
  // Without extra arguments: in 'show --pass overlap 1f1b' the last argument is the schedule.
  app.add_option("--pass", passes,
                 "Transform the schedule by passes, in this order ('penstock schedules --passes' "
                 "lists them); commas separate several")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("PASS");
  app.add_option("--price", prices,
                 "Costs of actions that passes add (listed there too); commas separate several")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("KEY=X");
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
  const double chunk = 1.0 / schedule.placement.chunks();
  const int slices = schedule.slices;
  costs.ForEachStage([](StageCosts& stage) {
    if (stage.recompute == 0) stage.recompute = stage.forward;
  });
  costs.exchange = costs.comm;
  std::set<std::string> given;
  for (const std::string& text : prices) {
    PENSTOCK_TRY(const Price parsed, ParsePrice(text));
    const auto& [key, price] = parsed;
    if (!given.insert(key).second) return InvalidArgument("--price {} is given twice", key);
    const auto set = [&](double StageCosts::*field, double value) {
      costs.ForEachStage([&](StageCosts& stage) { stage.*field = value; });
    };
    const auto set_of_microbatch = [&](double StageCosts::*field, double value) {
      costs.ForEachStage([&](StageCosts& stage) { stage.*field = value * stage.length; });
    };
    if (key == "recompute") {
      set_of_microbatch(&StageCosts::recompute, price * chunk / slices);
    } else if (key == "step") {
      set(&StageCosts::step, price * chunk);
    } else if (key == "unshard") {
      set(&StageCosts::unshard, price * chunk);
    } else if (key == "reduce") {
      set(&StageCosts::reduce, price * chunk);
    } else if (key == "gathered") {
      set(&StageCosts::gathered, price * chunk);
    } else if (key == "input") {
      set_of_microbatch(&StageCosts::input_activation,
                        price / slices);  // a chunk's input is as large as a rank's
    } else if (key == "offload") {
      costs.offload = price;
      if (!given.contains("reload")) costs.reload = price;
    } else if (key == "reload") {
      costs.reload = price;
    } else if (key == "s") {
      set_of_microbatch(&StageCosts::vocabulary_input, price);
    } else if (key == "t") {
      set_of_microbatch(&StageCosts::vocabulary_weight, price);
    } else if (key == "embed") {
      set_of_microbatch(&StageCosts::embed, price);
      if (!given.contains("embed-grad")) set_of_microbatch(&StageCosts::embed_gradient, price);
    } else if (key == "embed-grad") {
      set_of_microbatch(&StageCosts::embed_gradient, price);
    } else if (key == "softmax") {
      set_of_microbatch(&StageCosts::softmax, price);
    } else if (key == "weights") {
      set(&StageCosts::weights, price * chunk);
      if (!given.contains("version")) set(&StageCosts::version, price * chunk);
    } else if (key == "version") {
      set(&StageCosts::version, price * chunk);
    } else if (key == "gradients") {
      set(&StageCosts::gradients, price * chunk);
    } else if (key == "optimizer") {
      set(&StageCosts::optimizer, price * chunk);
    } else if (key == "workspace") {
      set_of_microbatch(&StageCosts::workspace, price);
    } else if (key == "exchange") {
      costs.exchange = price;
    }
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
