// How sizes and times are written and read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace penstock {

// "512 B", "3.5 MiB", "1.2 GiB".
std::string FormatBytes(std::int64_t bytes);
// "850 ns", "12.4 ms", "2 m 05 s", from seconds.
std::string FormatSeconds(double seconds);
// Bytes with a unit ("16GiB", "512 MB"; KiB and KB are 1024 and 1000); refuses anything else.
Result<std::int64_t> ParseBytes(std::string_view text);

}  // namespace penstock
