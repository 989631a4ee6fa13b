// The speed of a link between ranks.
#pragma once

#include <limits>
#include <string_view>

#include "base/result.h"

namespace penstock {

// A link of each rank. What a rank sends occupies it one after another, each for its bytes divided
// by the bandwidth, and arrives one latency later.
struct LinkSpeed {
  double latency = 0;  // seconds
  double bytes_per_second = std::numeric_limits<double>::infinity();
};

// Parses a bandwidth and a latency: "100MB/s 50us". Errors: kInvalidArgument.
Result<LinkSpeed> ParseLinkSpeed(std::string_view text);

}  // namespace penstock
