#include "graph/ops/collective_endpoint.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/result.h"
#include "graph/ops/collective.h"

namespace penstock {
namespace {

thread_local bool collectives_disabled = false;

thread_local std::vector<std::pair<int, GroupEnd*>> joined_groups;  // by number

auto PlaceOf(std::int64_t group) {
  return std::ranges::find(joined_groups, static_cast<int>(group),
                           &std::pair<int, GroupEnd*>::first);
}

GroupEnd& FindGroup(std::int64_t group) {
  const auto found = PlaceOf(group);
  if (found == joined_groups.end()) {
    throw std::runtime_error(fmt::format(
        "a collective uses group {}, which this thread has not joined; create a GroupEndpoint",
        group));
  }
  return *found->second;
}

}  // namespace

RankGroup::Ticket GroupEnd::Start(const CollectiveCall& call, const at::Tensor& x,
                                  const at::Tensor& result) {
  const Result<RankGroup::Ticket> ticket = group_->Start(call);
  if (!ticket) throw std::runtime_error(ticket.error().line());
  in_flight_.emplace(*ticket, InFlight{x, result});
  return *ticket;
}

at::Tensor GroupEnd::Wait(RankGroup::Ticket ticket) {
  const Status status = group_->Wait(ticket);
  const auto done = in_flight_.extract(ticket);
  if (!status) throw std::runtime_error(status.error().line());
  return done.mapped().result;
}

void JoinGroup(int group, GroupEnd& end) {
  PENSTOCK_CHECK(PlaceOf(group) == joined_groups.end(), "this thread has already joined group {}",
                 group);
  joined_groups.emplace_back(group, &end);
}

void LeaveGroup(int group) { joined_groups.erase(PlaceOf(group)); }

GroupEndpoint::GroupEndpoint(int group, GroupEnd& end) : group_(group) { JoinGroup(group, end); }
GroupEndpoint::GroupEndpoint(int group, std::unique_ptr<RankGroup> end)
    : group_(group), owned_(std::make_unique<GroupEnd>(std::move(end))) {
  JoinGroup(group, *owned_);
}
GroupEndpoint::~GroupEndpoint() { LeaveGroup(group_); }

DisableCollectivesGuard::DisableCollectivesGuard()
    : previous_(std::exchange(collectives_disabled, true)) {}
DisableCollectivesGuard::~DisableCollectivesGuard() { collectives_disabled = previous_; }

bool CollectivesDisabled() { return collectives_disabled; }

int RanksOfGroup(std::int64_t group) { return FindGroup(group).group().ranks(); }

std::int64_t StartOnGroup(std::int64_t group, CollectiveCall call, const at::Tensor& x,
                          const at::Tensor& result) {
  GroupEnd& end = FindGroup(group);
  if (!x.is_contiguous()) {
    throw std::runtime_error(fmt::format("{}: the tensor is not contiguous", NameOf(call.kind)));
  }
  call.input = {static_cast<const std::byte*>(x.const_data_ptr()), x.nbytes()};
  call.output = {static_cast<std::byte*>(result.mutable_data_ptr()), result.nbytes()};
  return end.Start(call, x, result);
}

at::Tensor WaitOnGroup(std::int64_t group, std::int64_t ticket) {
  return FindGroup(group).Wait(ticket);
}

}  // namespace penstock
