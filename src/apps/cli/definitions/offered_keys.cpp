#include "cli/definitions/offered_keys.h"

#include <set>

#include "config/train_config.h"
#include "schedule/catalog.h"

namespace penstock {

OfferedValues OfferedKeys() {
  OfferedValues offered;
  const auto add = [&](const std::string& key, std::string_view value) {
    offered.values.push_back({fmt::format("{}={}", key, value)});
  };
  std::set<std::string> seen;
  TrainConfig config;
  for (const std::string_view model : ModelNames()) {
    config.model.name = model;
    for (const ConfigKey& key : KeysOf(config)) {
      if (!seen.insert(key.key).second) continue;
      offered.values.push_back({key.key + "=", key.help});
      for (const std::string_view value : key.choices) add(key.key, value);
    }
    add("model.name", model);
  }
  for (const Algorithm& algorithm : Catalog()) add("pipeline.schedule", algorithm.name);
  return offered;
}

}  // namespace penstock
