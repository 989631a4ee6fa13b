#include "graph/ops/collective_endpoint.h"

#include <map>
#include <utility>

#include "base/result.h"
#include "graph/ops/collective.h"

namespace penstock {
namespace {

thread_local bool collectives_disabled = false;

// A group that this thread has joined. `end` is the last member, because its destructor waits until
// no other rank uses the tensors.
struct JoinedGroup {
  struct InFlight {
    at::Tensor input, result;
  };
  std::map<std::int64_t, InFlight> in_flight;  // by ticket
  std::unique_ptr<RankGroup> end;
};

thread_local std::map<int, JoinedGroup> joined_groups;  // by number

JoinedGroup& FindGroup(std::int64_t group) {
  const auto found = joined_groups.find(static_cast<int>(group));
  if (found == joined_groups.end()) {
    throw std::runtime_error(fmt::format(
        "a collective uses group {}, which this thread has not joined; create a GroupEndpoint",
        group));
  }
  return found->second;
}

}  // namespace

GroupEndpoint::GroupEndpoint(int group, std::unique_ptr<RankGroup> end) : group_(group) {
  const auto [joined, is_new] = joined_groups.try_emplace(group);
  PENSTOCK_CHECK(is_new, "this thread has already joined group {}", group);
  joined->second.end = std::move(end);
}
GroupEndpoint::~GroupEndpoint() { joined_groups.erase(group_); }

DisableCollectivesGuard::DisableCollectivesGuard()
    : previous_(std::exchange(collectives_disabled, true)) {}
DisableCollectivesGuard::~DisableCollectivesGuard() { collectives_disabled = previous_; }

bool CollectivesDisabled() { return collectives_disabled; }

int RanksOfGroup(std::int64_t group) { return FindGroup(group).end->ranks(); }

std::int64_t StartOnGroup(std::int64_t group, CollectiveCall call, const at::Tensor& x,
                          const at::Tensor& result) {
  JoinedGroup& joined = FindGroup(group);
  if (!x.is_contiguous()) {
    throw std::runtime_error(fmt::format("{}: the tensor is not contiguous", NameOf(call.kind)));
  }
  call.input = {static_cast<const std::byte*>(x.const_data_ptr()), x.nbytes()};
  call.output = {static_cast<std::byte*>(result.mutable_data_ptr()), result.nbytes()};
  const Result<RankGroup::Ticket> ticket = joined.end->Start(call);
  if (!ticket) throw std::runtime_error(ticket.error().message);
  joined.in_flight.emplace(*ticket, JoinedGroup::InFlight{x, result});
  return *ticket;
}

at::Tensor WaitOnGroup(std::int64_t group, std::int64_t ticket) {
  JoinedGroup& joined = FindGroup(group);
  const Status status = joined.end->Wait(ticket);
  const auto done = joined.in_flight.extract(ticket);
  if (!status) throw std::runtime_error(status.error().message);
  return done.mapped().result;
}

}  // namespace penstock
