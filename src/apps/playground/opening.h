// What the playground shows first, if a command writes its page.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "scenario/price/simulated.h"
#include "scenario/scenario.h"

namespace penstock::playground {

// Returns the page's text with these schedules in it: the first one to change, and the second, or
// its measured times, to compare with. `page` is what tools/playground has built.
// Requires: all are simulated with their timelines, and the list is not empty.
// Errors: kInvalidArgument if the page's fields cannot say what the costs are, because they would
// have other figures; kNotFound if the text is no such page.
Result<std::string> OpenWith(const std::string& page, const Scenario& scenario,
                             const std::vector<Simulated>& all);

}  // namespace penstock::playground
