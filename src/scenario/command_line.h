// Scenarios as commands that a user may type.
#pragma once

#include <string>

#include "scenario/scenario.h"

namespace penstock {

// Returns a schedule of the catalog with its own options: "interleaved:chunks=2".
std::string WordOf(const Candidate& candidate);

// Returns the command that simulates the scenario's first schedule: "penstock simulate 1f1b
// --ranks=8". Fields that only a configuration can give are left out. Requires: there is one.
std::string CommandLineOf(const Scenario& scenario);

}  // namespace penstock
