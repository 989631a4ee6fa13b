// Transport: carries activations and gradients between ranks.
//
// A step has a fixed set of messages, each with a slot number that every rank knows before the run
// (MessageMap). In round k (the k-th step of this run, from 0) each slot carries one message: its
// sender calls Send(slot, k, ...) once and its receiver Receive(slot, k, ...) once. Within a round
// any order of sends and receives will do: no order of messages can deadlock.
//
// Ownership: a Message moves in and out; it is never copied.
// Threads:   a rank's sends and receives come from that rank's one thread; Abort, aborted and
// reason
//            from any.
// Errors:    after Abort every pending and later Receive returns false and Send drops its message.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/result.h"
#include "runtime/message.h"

namespace penstock {

class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  // Hands the message over. Never waits for a receiver of this round. It does wait for the receiver
  // of the slot's previous round, which a synchronous schedule makes impossible: see threads.h.
  virtual void Send(int slot, std::int64_t round, Message message) = 0;

  // Waits for the round's message in the slot, without using a core for more than a few
  // microseconds. False after Abort; `message` is then untouched.
  [[nodiscard]] virtual bool Receive(int slot, std::int64_t round, Message& message) = 0;

  // Ends the run: wakes every waiter on every rank. The first reason wins, later ones are dropped.
  void Abort(Error reason);
  bool aborted() const { return aborted_.load(std::memory_order_seq_cst); }
  // Requires aborted().
  Error reason() const;

 protected:
  // Wakes every waiter that this process holds (and tells other processes, where there are any).
  // aborted() is true before it is called. Called once.
  virtual void WakeAll() = 0;

 private:
  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;
  bool has_reason_ = false;  // guarded by mutex_
  Error reason_;             // guarded by mutex_
};

}  // namespace penstock
