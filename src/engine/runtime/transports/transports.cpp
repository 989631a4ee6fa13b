#include "runtime/transports/transports.h"

#include <vector>

#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "runtime/transports/bytes.h"
#include "runtime/transports/threads.h"

namespace penstock {
namespace {

std::unique_ptr<Transport> MakeThreads(const TransportParams& params) {
  return std::make_unique<ThreadTransport>(params.messages);
}

template <BytesTransport::Inside kInside>
std::unique_ptr<Transport> MakeBytes(const TransportParams& params) {
  return std::make_unique<BytesTransport>(params.messages, params.ranks, params.group, kInside);
}

constexpr TransportKind kKinds[] = {
    {"threads", "between threads of one process, by reference", false, MakeThreads},
    {"processes",
     "by reference inside a process, as bytes through the process group between processes", true,
     MakeBytes<BytesTransport::Inside::kOwners>},
    {"bytes", "as bytes between any two ranks; for tests", true,
     MakeBytes<BytesTransport::Inside::kBytes>},
};

}  // namespace

std::span<const TransportKind> TransportKinds() { return kKinds; }

Result<std::unique_ptr<Transport>> MakeTransport(std::string_view name,
                                                 const TransportParams& params) {
  std::vector<std::string_view> names;
  for (const TransportKind& kind : kKinds) {
    names.push_back(kind.name);
    if (kind.name != name) continue;
    if (params.ranks.has_all()) return kind.make(params);
    if (kind.between_processes && params.group != nullptr) return kind.make(params);
    return InvalidArgument("transport {} does not connect the processes that the ranks are on",
                           Quote(name));
  }
  return InvalidArgument(
      "no transport is named {}; {}", Quote(name),
      DidYouMean(name, names, fmt::format("there are {}", fmt::join(names, ", "))));
}

std::string_view DefaultTransport(const LocalRanks& ranks) {
  return ranks.has_all() ? "threads" : "processes";
}

}  // namespace penstock
