// BytesTransport: sends messages between hosts as bytes through the host group, whatever connects
// the hosts. Between ranks of one host, a message is handed over as on ThreadTransport, or sent as
// bytes too.
//
// A slot holds one message. The receiver acknowledges each message, and the sender of round k waits
// for the acknowledgment of round k-1. In a synchronous schedule, the acknowledgment has always
// arrived: it was sent before the message that lets the sender start round k (threads.h).
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "runtime/hosts/host_group.h"
#include "runtime/hosts/hosted_ranks.h"
#include "runtime/program.h"
#include "runtime/transport.h"
#include "runtime/transports/threads.h"

namespace penstock {

class BytesTransport final : public Transport {
 public:
  // What ranks of one host hand over.
  enum class Inside { kOwners, kBytes };

  // Create one on each host of the group, all for the same messages. `group` must outlive the
  // transport; it may be null if one host runs all ranks.
  BytesTransport(const MessageMap& messages, const HostedRanks& ranks, HostGroup* group,
                 Inside inside);
  ~BytesTransport() override;

  void Send(int slot, std::int64_t round, Message message) override;
  [[nodiscard]] bool Receive(int slot, std::int64_t round, Message& message) override;

 private:
  enum Kind : std::int32_t { kMessage, kReceived, kAbort };

  void WakeAll() override;
  // Looks for a message of another host for a short time.
  void Poll(int slot, std::int64_t round);
  void OnFrame(int from, const FrameTag& tag, Message message);

  const Inside inside_;
  const bool polls_;  // whether every rank can have a core
  // By slot: the other host that the slot's sender or receiver is on; -1 if both are on this host.
  std::vector<int> sender_, receiver_;
  // Received messages and, on the sender's side, its own messages that are not yet acknowledged.
  ThreadTransport slots_;
  std::atomic<bool> from_other_host_{false};  // the abort came from another host
  std::unique_ptr<Channel> channel_;          // null for one host
};

}  // namespace penstock
