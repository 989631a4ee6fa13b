// Groups of parameters with settings of their own for the optimizer.
#pragma once

#include <yaml-cpp/yaml.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace penstock {

// The parameters whose names contain a match of a regular expression (ECMAScript), and what differs
// for them from the optimizer's own settings.
struct ParameterGroup {
  std::string match;
  std::optional<std::string> name;  // of the optimizer: adamw or muon
  std::optional<double> lr_scale;   // factor of the learning rate
  std::optional<double> weight_decay, beta1, beta2, epsilon, momentum;
};

// Reads a list of maps, [{match: "norm|bias", weight_decay: 0}]. An empty text or a null node is no
// group. Errors: kInvalidArgument for another form, an unknown key (and the nearest known one), a
// value out of range, or an invalid expression.
Result<std::vector<ParameterGroup>> ParseParameterGroups(std::string_view text);
Result<std::vector<ParameterGroup>> ReadParameterGroups(const YAML::Node& list);
// Formats groups so that ParseParameterGroups reads them back unchanged; empty for none.
std::string FormatParameterGroups(const std::vector<ParameterGroup>& groups);

}  // namespace penstock
