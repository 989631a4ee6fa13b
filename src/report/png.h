// SVG to PNG, by librsvg's rsvg-convert.
#pragma once

#include <string>

#include "base/result.h"

namespace penstock {

// Returns the bytes of a PNG file, with two pixels to each of the SVG's on either axis. Errors:
// kUnavailable if rsvg-convert is not on PATH or fails.
Result<std::string> RasterizeSvg(const std::string& svg);

}  // namespace penstock
