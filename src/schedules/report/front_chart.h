// The chart of a search: time against memory, with bounds and the memory limit.
#pragma once

#include <string>

#include "report/front_page.h"

namespace penstock {

// Returns two <svg> elements of class "front", a wide and a narrow one. Each plan is a link to
// #plan=N.
std::string FrontSvg(const FrontPage& page);

}  // namespace penstock
