// BytesTransport: a message between hosts goes as bytes through the host group, whatever connects
// the hosts. Between ranks of one host it is handed over as on ThreadTransport, or as bytes too.
//
// A slot holds one message: the receiver acknowledges each, and the sender of round k waits for the
// acknowledgment of round k-1. In a synchronous schedule that has arrived before: the message that
// lets the sender begin round k was sent after it (threads.h).
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
  // What is handed over inside of one host.
  enum class Inside { kOwners, kBytes };

  // One on each host of the group, all for the same messages. Keeps `group`, which may be null
  // where one host runs all ranks.
  BytesTransport(const MessageMap& messages, const HostedRanks& ranks, HostGroup* group,
                 Inside inside);
  ~BytesTransport() override;

  void Send(int slot, std::int64_t round, Message message) override;
  [[nodiscard]] bool Receive(int slot, std::int64_t round, Message& message) override;

 private:
  enum Kind : std::int32_t { kMessage, kReceived, kAbort };

  void WakeAll() override;
  void OnFrame(int from, const FrameTag& tag, Message message);

  const Inside inside_;
  // By slot: the other host that the slot's sender or receiver is on; -1 where both are here.
  std::vector<int> sender_, receiver_;
  // Messages that have arrived; at the sender, which of its own are not acknowledged yet.
  ThreadTransport slots_;
  std::atomic<bool> from_other_host_{false};  // the abort came from another host
  std::unique_ptr<Channel> channel_;          // null for one host
};

}  // namespace penstock
