#include "cli/pass_options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/nearest.h"
#include "base/numbers.h"
#include "base/quote.h"
#include "simulate/pass_context.h"

namespace penstock {
namespace {

std::string PassHelp() {
  std::string help = "Change the schedule by passes, in this order:";
  for (const SchedulePass& pass : SchedulePasses()) {
    help += fmt::format("\n{}{}{}: {}", pass.name, pass.arguments.empty() ? "" : "=",
                        pass.arguments, pass.summary);
  }
  return help;
}

constexpr const char* kPriceHelp =
    "Price what passes add, in the units of --cost: recompute=T (default F) and step=T (occupy the "
    "rank), unshard=T and reduce=T of a rank's share of the model; offload=T and reload=T to move "
    "one rank's activations of one microbatch; input=X that recomputed ones keep and gathered=X of "
    "a rank's weights, in activations. Default 0";

const std::vector<std::string_view> kPriceKeys = {"recompute", "step",   "unshard", "reduce",
                                                  "offload",   "reload", "input",   "gathered"};

struct Price {
  std::string key;
  double value = 0;
};

Result<Price> ParsePrice(const std::string& text) {
  const std::size_t equals = std::min(text.find('='), text.size());
  const std::string key = text.substr(0, equals);
  if (std::find(kPriceKeys.begin(), kPriceKeys.end(), key) == kPriceKeys.end()) {
    return InvalidArgument(
        "--price {}: {}", Quote(text),
        DidYouMean(key, kPriceKeys, fmt::format("the keys are {}", fmt::join(kPriceKeys, ", "))));
  }
  const auto value = ParseNumber(text.substr(std::min(equals + 1, text.size())));
  if (!value) return InvalidArgument("--price {}: give {}=NUMBER", Quote(text), key);
  const bool is_memory = key == "input" || key == "gathered";
  const Status status = is_memory ? CheckMemory(*value) : CheckTime(*value);
  if (!status) return InvalidArgument("--price {}: {}", Quote(text), status.error().message);
  return Price{key, *value};
}

}  // namespace

void PassOptions::Define(CLI::App& app) {
  // Without extra arguments: in 'show --pass overlap 1f1b' the last word is the schedule.
  app.add_option("--pass", passes, PassHelp())->delimiter(',')->allow_extra_args(false);
  app.add_option("--price", prices, kPriceHelp)->delimiter(',')->allow_extra_args(false);
}

Status PassOptions::SetPrices(const Placement& placement, int cuts, Costs& costs) const {
  const double chunk = 1.0 / placement.chunks();
  for (StageCosts& stage : costs.stages) {
    if (stage.recompute == 0) stage.recompute = stage.forward;
  }
  std::set<std::string> given;
  for (const std::string& text : prices) {
    PENSTOCK_TRY(const Price parsed, ParsePrice(text));
    const auto& [key, price] = parsed;
    if (!given.insert(key).second) return InvalidArgument("--price {} is given twice", key);
    const auto set = [&](double StageCosts::*field, double value) {
      for (StageCosts& stage : costs.stages) stage.*field = value;
    };
    if (key == "recompute") {
      set(&StageCosts::recompute, price * chunk / cuts);
    } else if (key == "step") {
      set(&StageCosts::step, price * chunk);
    } else if (key == "unshard") {
      set(&StageCosts::unshard, price * chunk);
    } else if (key == "reduce") {
      set(&StageCosts::reduce, price * chunk);
    } else if (key == "gathered") {
      set(&StageCosts::gathered, price * chunk);
    } else if (key == "input") {
      set(&StageCosts::input_activation, price / cuts);  // a chunk's input is as large as a rank's
    } else if (key == "offload") {
      costs.offload = price;
      if (!given.contains("reload")) costs.reload = price;
    } else {
      costs.reload = price;
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
    PENSTOCK_TRY(const double value, limit(name, text.substr(equals + 1)));
    text = fmt::format("{}={}", name, value);
  }
  return converted;
}

Status PassOptions::Apply(Schedule& schedule, Costs& costs) const {
  PENSTOCK_TRY_STATUS(SetPrices(schedule.placement, schedule.cuts, costs));
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
