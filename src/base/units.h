// Formats and parses sizes and times.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace penstock {

// Returns "512 B", "3.50 MiB", "-12.0 GiB".
std::string FormatBytes(std::int64_t bytes);
// Returns "850 ns", "12.4 ms", "-2 m 05 s"; "-" if not finite.
std::string FormatSeconds(double seconds);
// Parses a number of bytes with its unit: "16GiB", "512 MB". KiB is 1024 bytes, KB is 1000. Refuses
// anything else.
Result<std::int64_t> ParseBytes(std::string_view text);
// Parses a number above 0 with thousands, millions, billions or trillions as its unit: "15T",
// "300B", "1e12". Refuses anything else.
Result<double> ParseTokens(std::string_view text);
// Parses a time with its unit: "10ms", "2.5 us", "50000h". Refuses anything else.
Result<double> ParseSeconds(std::string_view text);
// Parses bytes per second: "10Gbit/s", "12.5 GB/s", or a number alone ("1.25e9"). Refuses anything
// else.
Result<double> ParseBandwidth(std::string_view text);

}  // namespace penstock
