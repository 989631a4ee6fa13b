#include "cli/pass_options.h"

#include <charconv>
#include <cmath>

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

Result<double> ParsePrice(std::string_view text, std::string_view value) {
  double price = 0;
  const auto parsed = std::from_chars(value.data(), value.data() + value.size(), price);
  if (parsed.ec != std::errc() || parsed.ptr != value.data() + value.size() ||
      !std::isfinite(price) || price < 0) {
    return InvalidArgument("--price {}: give KEY=NUMBER, at least 0", text);
  }
  return price;
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
  bool reload_given = false;
  for (const std::string& text : prices) {
    const std::size_t equals = std::min(text.find('='), text.size());
    const std::string_view key = std::string_view(text).substr(0, equals);
    PENSTOCK_TRY(
        const double price,
        ParsePrice(text, std::string_view(text).substr(std::min(equals + 1, text.size()))));
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
      if (!reload_given) costs.reload = price;
    } else if (key == "reload") {
      costs.reload = price;
      reload_given = true;
    } else {
      return InvalidArgument(
          "--price {}: the keys are recompute, step, unshard, reduce, offload, reload, input, "
          "gathered",
          text);
    }
  }
  return {};
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
