// BytesTransport: sends messages between processes as bytes through the process group, whatever
// connects the processes. Between ranks of one process, a message is handed over as on
// ThreadTransport, or sent as bytes too.
//
// A slot holds one message. The receiver acknowledges each message, and the sender of round k waits
// for the acknowledgment of round k-1. In a synchronous schedule, the acknowledgment has always
// arrived: it was sent before the message that lets the sender start round k (threads.h).
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "runtime/processes/local_ranks.h"
#include "runtime/processes/process_group.h"
#include "runtime/program.h"
#include "runtime/transport.h"
#include "runtime/transports/threads.h"

namespace penstock {

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

}  // namespace penstock
