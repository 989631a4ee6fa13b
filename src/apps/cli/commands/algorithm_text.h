// The text of a catalog entry, for the listing and for docs/schedules.md.
#pragma once

#include <string>
#include <vector>

#include "schedule/catalog.h"

namespace penstock {

// "2", or "1+ (default 2)".
std::string ChunksText(const SupportedParameters& supported);
// "any ranks, any microbatches" if the entry has no constraint.
std::string ConstraintText(const Algorithm& algorithm);
// Closed form of the messages per batch in both directions: "2(p-1)m".
std::string MessagesText(const Algorithm& algorithm);
// The options beyond sizes and costs that the algorithm reads: "--group".
std::vector<std::string> OptionNames(const SupportedParameters& supported);

}  // namespace penstock
