// The options of ScheduleOptions that say how messages are sent and over which links.
#include "base/text/quote.h"
#include "cli/options/schedule_options.h"

namespace penstock {

Status ScheduleOptions::SetTransfers(Costs& costs) const {
  if (transfers) {
    const auto parsed = ParseTransfers(*transfers);
    if (!parsed) return InvalidArgument("--transfers {}", parsed.error().message);
    costs.transfers = *parsed;
  }
  if (topology.empty()) return {};
  if (comm) {
    return InvalidArgument(
        "--comm: the levels of topology have latencies of their own; leave it out");
  }
  for (const LinkLevel& level : topology.levels) {
    if (level.bandwidth == 0 || costs.message_bytes > 0) continue;
    return InvalidArgument("topology: level {} has a bandwidth; give --message-bytes",
                           Quote(level.name));
  }
  costs.topology = topology;
  return {};
}

}  // namespace penstock
