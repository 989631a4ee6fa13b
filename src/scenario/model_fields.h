// The fields of a scenario that price a model.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "scenario/fields.h"

namespace penstock {

// The choices of a field whose names are an array.
template <std::size_t N>
std::vector<std::string_view> List(const std::array<std::string_view, N>& names) {
  return {names.begin(), names.end()};
}

// The model and the devices that train it.
std::vector<ScenarioField> ModelFields();
// Where the devices are, and how often they fail.
std::vector<ScenarioField> PlaceFields();
// Sizes of a model without a file.
std::vector<ScenarioField> SizeFields();
// The implementation that runs it, and constants of the machine.
std::vector<ScenarioField> ImplementationFields();

}  // namespace penstock
