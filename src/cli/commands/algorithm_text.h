// A catalog row in words: what the listing and the documentation both say.
#pragma once

#include <string>
#include <vector>

#include "schedule/catalog.h"

namespace penstock {

// "2", or "1+ (default 2)".
std::string ChunksText(const Knobs& knobs);
// "any ranks, any microbatches" where the row says nothing.
std::string ConstraintText(const Algorithm& algorithm);
// Messages of a batch both ways, in closed form: "2(p-1)m".
std::string MessagesText(const Algorithm& algorithm);
// The options beyond sizes and costs that it reads: "--group".
std::vector<std::string> OptionNames(const Knobs& knobs);

}  // namespace penstock
