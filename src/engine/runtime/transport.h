// Transport: carries activations and gradients between ranks.
//
// A step has a fixed set of messages, each with a slot number that every rank knows before the run
// (MessageMap). In round k (the k-th step of this run, from 0), each slot carries one message: its
// sender calls Send(slot, k, ...) once and its receiver calls Receive(slot, k, ...) once. Sends and
// receives of a round may come in any order, so no order of messages can deadlock.
//
// Ownership: a Message is moved in and out, never copied.
// Threads: the sends and receives of a rank come from its single thread. Any thread may call Abort,
// aborted and reason.
// Errors: after Abort, every pending and later Receive returns false, and Send drops its message.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/mutex.h"
#include "base/result.h"
#include "runtime/message.h"

namespace penstock {

class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  // Hands the message over. Never waits for a receiver of this round. May wait for the receiver of
  // the slot's previous round, which cannot happen with a synchronous schedule (see threads.h).
  virtual void Send(int slot, std::int64_t round, Message message) = 0;

  // Waits for the round's message in the slot, without using a core for more than a few
  // microseconds. Returns false after Abort; `message` is then unchanged.
  [[nodiscard]] virtual bool Receive(int slot, std::int64_t round, Message& message) = 0;

  // Ends the run: wakes every waiter on every rank. The first reason wins.
  void Abort(Error reason);
  bool aborted() const { return aborted_.load(std::memory_order_seq_cst); }
  // Requires aborted().
  Error reason() const;

 protected:
  // Wakes every waiter in this process, and notifies other processes if there are any. Called once,
  // after aborted() has become true.
  virtual void WakeAll() = 0;

 private:
  std::atomic<bool> aborted_{false};
  mutable Mutex mutex_;
  bool has_reason_ PENSTOCK_GUARDED_BY(mutex_) = false;
  Error reason_ PENSTOCK_GUARDED_BY(mutex_);
};

}  // namespace penstock
