#include "runtime/transports/bytes.h"

#include <chrono>
#include <thread>
#include <utility>

namespace penstock {

BytesTransport::BytesTransport(const MessageMap& messages, const LocalRanks& ranks,
                               ProcessGroup* group, Inside inside)
    : inside_(inside),
      polls_(static_cast<unsigned>(ranks.ranks()) <= std::thread::hardware_concurrency()),
      slots_(messages) {
  const auto other_process = [&](int rank) {
    return rank < 0 || ranks.has(rank) ? -1 : ranks.process_of(rank);
  };
  for (int slot = 0; slot < messages.slots(); ++slot) {
    sender_.push_back(other_process(messages.from_rank(slot)));
    receiver_.push_back(other_process(messages.to_rank(slot)));
  }
  if (group == nullptr) return;
  channel_ = std::make_unique<Channel>(*group);
  channel_->Open([this](int from, const FrameTag& tag,
                        Message message) { OnFrame(from, tag, std::move(message)); },
                 [this](const Error& reason) {
                   from_other_process_.store(true);
                   Abort(reason);
                 });
}

BytesTransport::~BytesTransport() = default;

void BytesTransport::Send(int slot, std::int64_t round, Message message) {
  const int process = receiver_[slot];
  if (process < 0) {
    if (inside_ == Inside::kBytes) message = Packed(std::move(message).OnHost());
    slots_.Send(slot, round, std::move(message));
    return;
  }
  slots_.Send(slot, round, Message());
  if (aborted()) return;
  if (!channel_->group().TakesDeviceMessages()) message = std::move(message).OnHost();
  channel_->Send(process, {kMessage, slot, round}, std::move(message));
}

bool BytesTransport::Receive(int slot, std::int64_t round, Message& message) {
  const int process = sender_[slot];
  if (process >= 0 && polls_ && !slots_.HasArrived(slot, round)) Poll(slot, round);
  if (!slots_.Receive(slot, round, message)) return false;
  if (process >= 0) channel_->Send(process, {kReceived, slot, round}, AllocateMessage(0));
  return true;
}

void BytesTransport::Poll(int slot, std::int64_t round) {
  // About the time of putting threads to sleep and waking them, on the way of a message.
  constexpr std::chrono::microseconds kLongest{50};
  const auto deadline = std::chrono::steady_clock::now() + kLongest;
  ProcessGroup& group = channel_->group();
  group.BeginPoll();
  while (!slots_.HasArrived(slot, round) && !aborted() &&
         std::chrono::steady_clock::now() < deadline) {
    group.Poll();
  }
  group.EndPoll();
}

// The first two calls never wait: the slot is empty when its next message arrives, and full until
// that is acknowledged.
void BytesTransport::OnFrame(int from, const FrameTag& tag, Message message) {
  const auto is = [&](const std::vector<int>& processes) {
    return tag.index >= 0 && tag.index < std::ssize(processes) && processes[tag.index] == from;
  };
  if (tag.kind == kMessage && is(sender_)) {
    slots_.Send(tag.index, tag.number, std::move(message));
  } else if (tag.kind == kReceived && is(receiver_)) {
    Message sent;
    PENSTOCK_CHECK(slots_.Receive(tag.index, tag.number, sent) || aborted(), "slot {}", tag.index);
  } else if (tag.kind == kAbort) {
    from_other_process_.store(true);
    Abort({static_cast<ErrorCode>(tag.index), std::string(TextOf(message))});
  } else {
    PENSTOCK_CHECK(false, "frame {} for slot {} from process {}", tag.kind, tag.index, from);
  }
}

void BytesTransport::WakeAll() {
  const Error why = reason();
  slots_.Abort(why);
  if (!channel_ || from_other_process_.load()) return;
  channel_->SendToOthers({kAbort, static_cast<std::int32_t>(why.code), 0}, why.message);
}

}  // namespace penstock
