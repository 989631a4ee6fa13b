// Values of fields that are maps or lists of maps in a configuration.
#pragma once

#include <string>

#include "base/result.h"
#include "base/text/yaml_map.h"
#include "scenario/scenario.h"

namespace penstock {

// Reads the value of `key`. Errors name the line and the key.
Status ReadNested(const YamlMap& config, const std::string& key, CostList& to);
Status ReadNested(const YamlMap& config, const std::string& key, Topology& to);
Status ReadNested(const YamlMap& config, const std::string& key, CollectivesConfig& to);

// Returns the value as YAML that follows "key:".
std::string WriteNested(const CostList& costs);
std::string WriteNested(const Topology& topology);
std::string WriteNested(const CollectivesConfig& collectives);

// Returns text in quotes, which YAML reads literally.
std::string YamlQuote(std::string_view text);

}  // namespace penstock
