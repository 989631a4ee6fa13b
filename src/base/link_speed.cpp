#include "base/link_speed.h"

#include "base/units.h"

namespace penstock {

Result<LinkSpeed> ParseLinkSpeed(std::string_view text) {
  constexpr std::string_view kPerSecond = "/s ";
  const std::size_t end = text.find(kPerSecond);
  if (end != std::string_view::npos) {
    const auto bytes = ParseBytes(text.substr(0, end));
    const auto latency = ParseSeconds(text.substr(end + kPerSecond.size()));
    if (bytes && *bytes > 0 && latency) return LinkSpeed{*latency, static_cast<double>(*bytes)};
  }
  return InvalidArgument("'{}' is not a bandwidth and a latency, such as 100MB/s 50us", text);
}

}  // namespace penstock
