// SVG to PNG and PDF, by librsvg's rsvg-convert.
#pragma once

#include <string>

#include "base/result.h"

namespace penstock {

enum class PictureFormat {
  kPng,  // with two pixels to each of the SVG's on either axis
  kPdf,  // with text as text
};

// Returns the bytes of the file. Errors: kUnavailable if rsvg-convert is not on PATH or fails.
Result<std::string> ConvertSvg(const std::string& svg, PictureFormat format);

}  // namespace penstock
