#include "runtime/hosts/hosted_ranks.h"

#include <algorithm>
#include <utility>

namespace penstock {
namespace {

Status CheckHost(int hosts, int host) {
  if (host >= 0 && host < hosts) return {};
  return InvalidArgument("host {}: the hosts are 0 to {}", host, hosts - 1);
}

}  // namespace

HostedRanks::HostedRanks(std::vector<int> host_of, int host)
    : host_of_(std::move(host_of)), host_(host) {
  for (int rank = 0; rank < ranks(); ++rank) {
    if (has(rank)) here_.push_back(rank);
  }
}

Result<HostedRanks> HostedRanks::Split(int ranks, int hosts, int host) {
  PENSTOCK_TRY_STATUS(CheckHost(hosts, host));
  if (hosts > ranks) return InvalidArgument("{} hosts cannot share {} ranks", hosts, ranks);
  std::vector<int> host_of;
  for (int rank = 0; rank < ranks; ++rank) {
    host_of.push_back(static_cast<int>(static_cast<std::int64_t>(rank) * hosts / ranks));
  }
  return HostedRanks(std::move(host_of), host);
}

Result<HostedRanks> HostedRanks::Of(std::vector<int> host_of, int hosts, int host) {
  PENSTOCK_TRY_STATUS(CheckHost(hosts, host));
  for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
    if (host_of[rank] >= 0 && host_of[rank] < hosts) continue;
    return InvalidArgument("rank {} is on host {}: the hosts are 0 to {}", rank, host_of[rank],
                           hosts - 1);
  }
  for (int idle = 0; idle < hosts; ++idle) {
    if (std::ranges::find(host_of, idle) != host_of.end()) continue;
    return InvalidArgument("host {} runs no rank: start fewer hosts, or give it one", idle);
  }
  return HostedRanks(std::move(host_of), host);
}

}  // namespace penstock
