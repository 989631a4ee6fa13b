// SVG to PNG, through a headless Chromium where one is installed.
#pragma once

#include <string>

#include "base/result.h"

namespace penstock {

// The picture's pixels at twice its size, as a PNG file's bytes. Errors: kUnavailable where there
// is no Chromium on PATH, or it fails.
Result<std::string> RasterizeSvg(const std::string& svg);

}  // namespace penstock
