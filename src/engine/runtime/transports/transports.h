// The available transports, by name. To add one: a file in this folder, a line in transports.cpp,
// and a line in tests/engine/runtime/transports/transports_test.cpp.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "runtime/processes/local_ranks.h"
#include "runtime/processes/process_group.h"
#include "runtime/program.h"
#include "runtime/transport.h"

namespace penstock {

// The parameters of a transport for one run.
struct TransportParams {
  const MessageMap& messages;
  const LocalRanks& ranks;
  ProcessGroup* group = nullptr;  // must outlive the transport; null if one process runs all ranks
};

struct TransportKind {
  std::string_view name;
  std::string_view summary;
  bool between_processes;
  std::unique_ptr<Transport> (*make)(const TransportParams& params);
};

std::span<const TransportKind> TransportKinds();

// Creates a transport for one run. All processes of the group must use the same kind, in the order
// in which channels are opened. Errors: kInvalidArgument for an unknown name, and if the ranks are
// on several processes and the transport does not connect them.
Result<std::unique_ptr<Transport>> MakeTransport(std::string_view name,
                                                 const TransportParams& params);

// Returns the fastest transport for these ranks.
std::string_view DefaultTransport(const LocalRanks& ranks);

}  // namespace penstock
