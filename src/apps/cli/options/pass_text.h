// The passes and prices that --pass and --price accept.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cli/help/offered_values.h"

namespace penstock {

std::string PassesText();
nlohmann::ordered_json PassesJson();

// What the shell offers for --pass and --price.
OfferedValues OfferedPasses();
OfferedValues OfferedPrices();

}  // namespace penstock
