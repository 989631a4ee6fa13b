#include "cli/help/meant_option.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "base/text/nearest.h"
#include "base/text/option_name.h"
#include "config/config_fields.h"
#include "config/key_hint.h"
#include "config/other_names.h"

namespace penstock {
namespace {

bool Has(const CLI::App& app, std::string_view option) {
  return app.get_option_no_throw(std::string(option)) != nullptr;
}

// What an unknown option of a command that takes keys of a configuration may mean, or nothing.
std::string KeyOrInstead(std::string_view name) {
  const std::string_view instead = InPlaceOf(name);
  if (!instead.empty()) return fmt::format(": {}", instead);
  TrainConfig config;
  const ConfigFields fields = FieldsOf(config);
  const std::string_view key =
      KeyCalled(name.substr(std::min(name.find_first_not_of('-'), name.size())), fields.all);
  return key.empty() ? "" : fmt::format("; did you mean '{}='?", key);
}

bool IsKey(std::string_view ours) { return ours.find('=') != ours.npos; }

std::optional<std::string> OurOptionOf(const std::string& name, const CLI::App& app) {
  return OurNameOf(name, [&](std::string_view each) {
    return Has(app, IsKey(each) ? "KEY=VALUE" : OptionName(each));
  });
}

}  // namespace

bool NamesLongOption(const std::string& name, const CLI::App& app) {
  return Has(app, "-" + name) || !OurOptionOf(name, app).value_or("").empty();
}

std::string MeantOption(const std::string& name, const CLI::App& app) {
  const std::optional<std::string> ours = OurOptionOf(name, app);
  if (ours && !ours->empty()) {
    return fmt::format("; did you mean '{}'?", IsKey(*ours) ? *ours : OptionName(*ours));
  }
  if (Has(app, "KEY=VALUE")) {
    std::string key = KeyOrInstead(name);
    if (!key.empty()) return key;
  }
  if (ours) return "";
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& each : option->get_lnames()) names.push_back("--" + each);
    for (const std::string& each : option->get_snames()) names.push_back("-" + each);
  }
  return Suggestion(name, {names.begin(), names.end()});
}

}  // namespace penstock
