#include "runtime/collectives/rank_groups.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "base/index.h"
#include "base/text/quote.h"

namespace penstock {
namespace {

// The part of a group that runs on this host, connected to its part on other hosts.
class HostedGroup final : public RemoteRanks {
 public:
  HostedGroup(RankGroupOptions options, const std::vector<int>& host_of, HostGroup& hosts)
      : host_of_(host_of), exchanger_(std::move(options), Here(hosts), this) {
    channel_ = std::make_unique<Channel>(hosts);
    channel_->Open([this](int from, const FrameTag& tag,
                          Message message) { OnFrame(from, tag, std::move(message)); },
                   [this](const Error& reason) { exchanger_.Lose(reason); });
  }

  Exchanger& exchanger() { return exchanger_; }

  // The message owns a copy, because a lost host may never take it, and the caller's memory is free
  // after an abort.
  void SendPiece(const PieceTag& tag, ConstBytes data) override {
    Message message = AllocateMessage(data.size());
    if (!data.empty()) std::memcpy(message.data(), data.data(), data.size());
    channel_->Send(host_of_[Index(tag.to)],
                   {kPiece + tag.signature, tag.from * exchanger_.ranks() + tag.to, tag.exchange},
                   std::move(message));
  }
  void SendAbort(const Error& reason) override {
    channel_->SendToOthers({kAbort, static_cast<std::int32_t>(reason.code), 0}, reason.line());
  }
  void SendLeave(int rank) override { channel_->SendToOthers({kLeave, rank, 0}); }

 private:
  enum Kind : std::int32_t { kAbort, kLeave, kPiece };  // the last one plus a signature

  std::vector<bool> Here(const HostGroup& hosts) const {
    std::vector<bool> here;
    for (const int host : host_of_) here.push_back(host == hosts.host());
    return here;
  }

  void OnFrame(int from, const FrameTag& tag, Message message) {
    if (tag.kind == kAbort) {
      return exchanger_.RemoteAbort(
          {static_cast<ErrorCode>(tag.index), std::string(TextOf(message))});
    }
    const int sender = tag.kind == kLeave ? tag.index : tag.index / exchanger_.ranks();
    PENSTOCK_CHECK(sender >= 0 && sender < exchanger_.ranks() && host_of_[Index(sender)] == from,
                   "a frame of rank {} from host {}", sender, from);
    if (tag.kind == kLeave) return exchanger_.RemoteLeave(sender);
    const auto owner = std::make_shared<Message>(std::move(message));
    const ConstBytes data(static_cast<const std::byte*>(owner->data()), owner->bytes());
    exchanger_.Arrive({tag.kind - kPiece, sender, tag.index % exchanger_.ranks(), tag.number}, data,
                      owner);
  }

  const std::vector<int> host_of_;  // by rank of the group
  Exchanger exchanger_;
  std::unique_ptr<Channel> channel_;  // last, because its handlers use the exchanger
};

Status CheckMembers(const RankGroupMembers& members, const HostedRanks& ranks,
                    const HostGroup* hosts) {
  if (members.ranks.empty()) return InvalidArgument("group {} has no ranks", Quote(members.name));
  std::set<int> seen;
  for (const int rank : members.ranks) {
    if (rank < 0 || rank >= ranks.ranks()) {
      return InvalidArgument("group {}: rank {} is not one of the {} ranks of the run",
                             Quote(members.name), rank, ranks.ranks());
    }
    if (!seen.insert(rank).second) {
      return InvalidArgument("group {}: rank {} is in it twice", Quote(members.name), rank);
    }
    if (!ranks.has(rank) && hosts == nullptr) {
      return InvalidArgument(
          "group {}: rank {} is on another host, but the hosts are not connected",
          Quote(members.name), rank);
    }
  }
  return {};
}

std::shared_ptr<Exchanger> MakeExchanger(const RankGroupMembers& members, const HostedRanks& ranks,
                                         HostGroup* hosts, RankGroupOptions options,
                                         std::optional<LinkSpeed> link) {
  std::vector<int> host_of;
  for (const int rank : members.ranks) host_of.push_back(ranks.host_of(rank));
  if (std::ranges::count(host_of, host_of.front()) == std::ssize(host_of)) {
    return std::make_shared<Exchanger>(std::move(options), std::vector<bool>(host_of.size(), true),
                                       nullptr, link);
  }
  if (std::ranges::find(host_of, ranks.host()) == host_of.end()) {
    const Channel unused(*hosts);  // channels are matched by the order of their creation
    return nullptr;
  }
  const auto hosted = std::make_shared<HostedGroup>(std::move(options), host_of, *hosts);
  return {hosted, &hosted->exchanger()};
}

}  // namespace

Result<std::vector<RankGroupEnds>> MakeRankGroups(const std::vector<RankGroupMembers>& groups,
                                                  const HostedRanks& ranks, HostGroup* hosts,
                                                  std::chrono::milliseconds timeout,
                                                  std::optional<LinkSpeed> link) {
  for (const RankGroupMembers& members : groups) {
    PENSTOCK_TRY_STATUS(CheckMembers(members, ranks, hosts));
  }
  std::vector<RankGroupEnds> all;
  for (const RankGroupMembers& members : groups) {
    const auto exchanger = MakeExchanger(members, ranks, hosts, {members.name, timeout}, link);
    RankGroupEnds& ends = all.emplace_back(members.ranks.size());
    for (std::size_t rank = 0; rank < ends.size(); ++rank) {
      if (!ranks.has(members.ranks[rank])) continue;
      ends[rank] = MakeGroupEnd(exchanger, static_cast<int>(rank));
    }
  }
  return all;
}

}  // namespace penstock
