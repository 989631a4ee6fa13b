#include "runtime/collectives/rank_groups.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/index.h"
#include "base/text/quote.h"

namespace penstock {
namespace {

// The part of a group that runs on this process, connected to its part on other processes.
class GroupAcrossProcesses final : public RemoteRanks {
 public:
  GroupAcrossProcesses(RankGroupOptions options, std::shared_ptr<MessageMemory> memory,
                       const std::vector<int>& process_of, ProcessGroup& processes)
      : process_of_(process_of),
        memory_(processes.TakesDeviceMessages() ? std::move(memory) : nullptr),
        exchanger_(std::move(options), Here(processes), this) {
    channel_ = std::make_unique<Channel>(processes);
    channel_->Open([this](int from, const FrameTag& tag,
                          Message message) { OnFrame(from, tag, std::move(message)); },
                   [this](const Error& reason) { exchanger_.Lose(reason); });
  }

  Exchanger& exchanger() { return exchanger_; }

  // The message owns a copy, because a lost process may never take it, and the caller's memory is
  // free after an abort.
  bool ReadsMemory() const override { return memory_ != nullptr; }
  void SendPiece(const PieceTag& tag, ConstBytes data) override {
    Message message =
        memory_ ? memory_->CopyToMessage(data)
                : CopyToMessage({reinterpret_cast<const char*>(data.data()), data.size()});
    channel_->Send(process_of_[Index(tag.to)],
                   {kPiece + tag.signature, tag.from * exchanger_.ranks() + tag.to, tag.exchange},
                   std::move(message));
  }
  void SendAbort(const Error& reason) override {
    channel_->SendToOthers({kAbort, static_cast<std::int32_t>(reason.code), 0}, reason.line());
  }
  void SendLeave(int rank) override { channel_->SendToOthers({kLeave, rank, 0}); }

 private:
  enum Kind : std::int32_t { kAbort, kLeave, kPiece };  // the last one plus a signature

  std::vector<bool> Here(const ProcessGroup& processes) const {
    std::vector<bool> here;
    for (const int process : process_of_) here.push_back(process == processes.process());
    return here;
  }

  void OnFrame(int from, const FrameTag& tag, Message message) {
    if (tag.kind == kAbort) {
      return exchanger_.RemoteAbort(
          {static_cast<ErrorCode>(tag.index), std::string(TextOf(message))});
    }
    const int sender = tag.kind == kLeave ? tag.index : tag.index / exchanger_.ranks();
    PENSTOCK_CHECK(sender >= 0 && sender < exchanger_.ranks() && process_of_[Index(sender)] == from,
                   "a frame of rank {} from process {}", sender, from);
    if (tag.kind == kLeave) return exchanger_.RemoteLeave(sender);
    const auto owner = std::make_shared<Message>(std::move(message));
    const ConstBytes bytes(static_cast<const std::byte*>(owner->data()), owner->bytes());
    exchanger_.Arrive({tag.kind - kPiece, sender, tag.index % exchanger_.ranks(), tag.number},
                      memory_ ? memory_->DataOf(*owner) : GroupMemory::Piece{bytes, true}, owner);
  }

  const std::vector<int> process_of_;            // by rank of the group
  const std::shared_ptr<MessageMemory> memory_;  // null: messages are on the host
  Exchanger exchanger_;
  std::unique_ptr<Channel> channel_;  // last, because its handlers use the exchanger
};

Status CheckMembers(const RankGroupMembers& members, const LocalRanks& ranks,
                    const ProcessGroup* processes) {
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
    if (!ranks.has(rank) && processes == nullptr) {
      return InvalidArgument(
          "group {}: rank {} is on another process, but the processes are not connected",
          Quote(members.name), rank);
    }
  }
  return {};
}

std::shared_ptr<Exchanger> MakeExchanger(const RankGroupMembers& members, const LocalRanks& ranks,
                                         ProcessGroup* processes, RankGroupOptions options,
                                         std::optional<LinkSpeed> link) {
  std::vector<int> process_of;
  for (const int rank : members.ranks) process_of.push_back(ranks.process_of(rank));
  if (std::ranges::count(process_of, process_of.front()) == std::ssize(process_of)) {
    return std::make_shared<Exchanger>(std::move(options),
                                       std::vector<bool>(process_of.size(), true), nullptr, link);
  }
  if (std::ranges::find(process_of, ranks.process()) == process_of.end()) {
    const Channel unused(*processes);  // channels are matched by the order of their creation
    return nullptr;
  }
  const auto local = std::make_shared<GroupAcrossProcesses>(std::move(options), members.memory,
                                                            process_of, *processes);
  return {local, &local->exchanger()};
}

}  // namespace

Result<std::vector<RankGroupEnds>> MakeRankGroups(const std::vector<RankGroupMembers>& groups,
                                                  const LocalRanks& ranks, ProcessGroup* processes,
                                                  std::chrono::milliseconds timeout,
                                                  std::optional<LinkSpeed> link) {
  for (const RankGroupMembers& members : groups) {
    PENSTOCK_TRY_STATUS(CheckMembers(members, ranks, processes));
  }
  std::vector<RankGroupEnds> all;
  for (const RankGroupMembers& members : groups) {
    const auto exchanger =
        MakeExchanger(members, ranks, processes, {members.name, timeout, members.memory}, link);
    RankGroupEnds& ends = all.emplace_back(members.ranks.size());
    for (std::size_t rank = 0; rank < ends.size(); ++rank) {
      if (!ranks.has(members.ranks[rank])) continue;
      ends[rank] = MakeGroupEnd(exchanger, static_cast<int>(rank));
    }
  }
  return all;
}

}  // namespace penstock
