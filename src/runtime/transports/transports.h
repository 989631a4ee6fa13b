// The transports there are, by name. To add one: a file in this folder, a line in transports.cpp,
// and a line in tests/runtime/transports/transports_test.cpp.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "runtime/hosts/host_group.h"
#include "runtime/hosts/hosted_ranks.h"
#include "runtime/program.h"
#include "runtime/transport.h"

namespace penstock {

// What a transport of one run is made for.
struct TransportParams {
  const MessageMap& messages;
  const HostedRanks& ranks;
  HostGroup* group = nullptr;  // null where one host runs all ranks; outlives the transport
};

struct TransportKind {
  std::string_view name;
  std::string_view summary;
  bool between_hosts;
  std::unique_ptr<Transport> (*make)(const TransportParams& params);
};

std::span<const TransportKind> TransportKinds();

// Fresh, for one run; on every host of the group the same kind, in the same order as channels are
// opened. Errors: kInvalidArgument for an unknown name, and where the ranks are on several hosts
// and the transport does not connect them.
Result<std::unique_ptr<Transport>> MakeTransport(std::string_view name,
                                                 const TransportParams& params);

// The one that is fastest for these ranks.
std::string_view DefaultTransport(const HostedRanks& ranks);

}  // namespace penstock
