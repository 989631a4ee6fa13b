#include "cli/options/pass_options.h"

#include "base/units.h"
#include "cli/help/help.h"
#include "cli/help/offered_values.h"
#include "schedule/pricing/action_prices.h"
#include "simulate/pass_context.h"

namespace penstock {
namespace {

// Names the option in an error about the price.
Status OfPrice(Status status) {
  if (status) return status;
  return MakeError(status.error().code, "--{}", status.error().line());
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
  for (const PriceKey& key : PriceKeys()) {
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
  for (const PriceKey& key : PriceKeys()) text += HelpEntry(std::string(key.name), key.meaning);
  return text;
}

nlohmann::ordered_json PassesJson() {
  nlohmann::ordered_json passes = nlohmann::ordered_json::array();
  for (const SchedulePass& pass : SchedulePasses()) {
    passes.push_back(
        {{"name", pass.name}, {"arguments", pass.arguments}, {"summary", pass.summary}});
  }
  nlohmann::ordered_json prices = nlohmann::ordered_json::array();
  for (const PriceKey& key : PriceKeys()) {
    prices.push_back({{"key", key.name}, {"meaning", key.meaning}});
  }
  return {{"passes", std::move(passes)}, {"prices", std::move(prices)}};
}

Status PassOptions::SetPrices(const Schedule& schedule, Costs& costs) const {
  return OfPrice(SetActionPrices(prices, schedule, costs));
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
    if (!IsMemoryPrice(key) || !ParseBytes(size)) continue;
    PENSTOCK_TRY(const double value, limit("--price " + key, size));
    text = fmt::format("{}={}", key, value);
  }
  return converted;
}

Result<PassOptions> PassOptions::WithTimes(PlainTime plain) const {
  PassOptions converted = *this;
  for (std::string& text : converted.prices) {
    const std::size_t equals = std::min(text.find('='), text.size());
    const std::string key = text.substr(0, equals);
    auto time = ParseTimeOption(text.substr(std::min(equals + 1, text.size())));
    if (IsMemoryPrice(key) || !time) continue;  // ParsePrice refuses what is no time
    time->text = text;
    PENSTOCK_TRY_STATUS(CheckUnit("--price", *time, plain));
    text = fmt::format("{}={}", key, time->value);
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
