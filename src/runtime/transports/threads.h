// ThreadTransport: ranks are threads of one process, and a message is handed over by reference.
//
// A slot holds one message and a state that counts up: 2k is "empty, round k may send", 2k+1 is
// "full, round k may receive". The sender of round k waits for 2k, so a slot is never overwritten.
//
// In a synchronous schedule that wait never happens. The sender of activation (s, n) has finished
// its round k-1, so it holds the gradient (s+1, n) of round k-1, which stage s+1 made after it took
// the activation. The sender of gradient (s, n) has received the activation (s-1, n) of round k,
// whose rank had by then finished round k-1, in which it took the gradient.
// Where a sender does get a round ahead (a schedule of forwards only), waiting cannot deadlock: the
// ranks in the lowest round never wait to send, because every other rank has taken all that the
// round before carried.
#pragma once

#include <memory>
#include <optional>

#include "runtime/program.h"
#include "runtime/transport.h"

namespace penstock {

class ThreadTransport final : public Transport {
 public:
  struct Options {
    // Polls before a waiter goes to sleep, some tens of nanoseconds each. Default: about ten
    // microseconds where every rank can have a core; none where ranks share cores, which let each
    // other run a few times instead.
    std::optional<int> spin;
  };

  explicit ThreadTransport(const MessageMap& messages) : ThreadTransport(messages, Options()) {}
  ThreadTransport(const MessageMap& messages, const Options& options);
  ~ThreadTransport() override;

  void Send(int slot, std::int64_t round, Message message) override;
  [[nodiscard]] bool Receive(int slot, std::int64_t round, Message& message) override;

 private:
  struct Slot;
  struct Waiter;  // one a rank

  void WakeAll() override;
  bool WaitFor(int rank, int slot, std::uint32_t state);
  void Wake(int rank, int slot);

  std::unique_ptr<Slot[]> slots_;
  std::unique_ptr<Waiter[]> waiters_;
  int ranks_;
  int spin_;
};

}  // namespace penstock
