// ThreadTransport: ranks are threads of one process, and messages are handed over by reference.
//
// A slot holds one message and a state that counts up: 2k means "empty, round k may send", and 2k+1
// means "full, round k may receive". The sender of round k waits for 2k, so a slot is never
// overwritten.
//
// In a synchronous schedule, that wait never happens. The sender of activation (s, n) has finished
// its round k-1, so it has received the gradient (s+1, n) of round k-1, which stage s+1 computed
// after it received the activation. The sender of gradient (s, n) has received the activation (s-1,
// n) of round k, whose rank had by then finished round k-1, in which it received the gradient.
// If a sender does get a round ahead (in a schedule of forwards only), waiting cannot deadlock: the
// ranks in the lowest round never wait to send, because every other rank has received all messages
// of the previous round.
#pragma once

#include <memory>
#include <optional>

#include "runtime/program.h"
#include "runtime/transport.h"

namespace penstock {

class ThreadTransport final : public Transport {
 public:
  struct Options {
    // The number of polls before a waiter goes to sleep, some tens of nanoseconds each. Default:
    // about ten microseconds if every rank can have a core; none if ranks share cores, in which
    // case a waiter yields a few times instead.
    std::optional<int> spin;
  };

  explicit ThreadTransport(const MessageMap& messages) : ThreadTransport(messages, Options()) {}
  ThreadTransport(const MessageMap& messages, const Options& options);
  ~ThreadTransport() override;

  void Send(int slot, std::int64_t round, Message message) override;
  [[nodiscard]] bool Receive(int slot, std::int64_t round, Message& message) override;
  // Returns whether Receive would not wait.
  bool HasArrived(int slot, std::int64_t round) const;

 private:
  struct Slot;
  struct Waiter;  // one per rank

  void WakeAll() override;
  bool WaitFor(int rank, int slot, std::uint32_t state);
  void Wake(int rank, int slot);

  std::unique_ptr<Slot[]> slots_;
  std::unique_ptr<Waiter[]> waiters_;
  int ranks_;
  int spin_;
};

}  // namespace penstock
