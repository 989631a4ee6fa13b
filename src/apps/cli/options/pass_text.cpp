#include "cli/options/pass_text.h"

#include "cli/help/help.h"
#include "schedule/passes/pass_table.h"
#include "schedule/pricing/action_prices.h"

namespace penstock {

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

}  // namespace penstock
