// How sure a choice among plans is, as data: what `penstock plan --json` prints and what Python
// returns.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "plan/uncertainty/outlook.h"

namespace penstock {

// Null for an outlook that Ctrl-C ended.
nlohmann::ordered_json FiguresOf(const std::optional<Outlook>& outlook);

}  // namespace penstock
