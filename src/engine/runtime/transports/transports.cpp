#include "runtime/transports/transports.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "runtime/transports/threads.h"

namespace penstock {
namespace {

// Sends messages between processes as bytes through the process group, whatever
// connects the processes. Between ranks of one process, a message is handed over as on
// ThreadTransport, or sent as bytes too.
//
// A slot holds one message. The receiver acknowledges each message, and the sender of round k waits
// for the acknowledgment of round k-1. In a synchronous schedule, the acknowledgment has always
// arrived: it was sent before the message that lets the sender start round k (threads.h).
class BytesTransport final : public Transport {
 public:
  // What ranks of one process hand over.
  enum class Inside { kOwners, kBytes };

  // Create one on each process of the group, all for the same messages. `group` must outlive the
  // transport; it may be null if one process runs all ranks.
  BytesTransport(const MessageMap& messages, const LocalRanks& ranks, ProcessGroup* group,
                 Inside inside);
  ~BytesTransport() override;

  void Send(int slot, std::int64_t round, Message message) override;
  [[nodiscard]] bool Receive(int slot, std::int64_t round, Message& message) override;

 private:
  enum Kind : std::int32_t { kMessage, kReceived, kAbort };

  void WakeAll() override;
  // Looks for a message of another process for a short time.
  void Poll(int slot, std::int64_t round);
  void OnFrame(int from, const FrameTag& tag, Message message);

  const Inside inside_;
  const bool polls_;  // whether every rank can have a core
  // By slot: the other process that the slot's sender or receiver is on; -1 if both are on this
  // process.
  std::vector<int> sender_, receiver_;
  // Received messages and, on the sender's side, its own messages that are not yet acknowledged.
  ThreadTransport slots_;
  std::atomic<bool> from_other_process_{false};  // the abort came from another process
  std::unique_ptr<Channel> channel_;             // null for one process
};

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
