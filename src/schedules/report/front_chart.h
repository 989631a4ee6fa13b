// The chart of a search: time against memory, with bounds and the memory limit.
#pragma once

#include <string>

#include "report/front_page.h"

namespace penstock {

// Returns an <svg> element of class "front". Each plan is a link to #plan=N.
std::string FrontSvg(const FrontPage& page);

}  // namespace penstock
