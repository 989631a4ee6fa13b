#include "runtime/transports/threads.h"

#include <thread>
#include <utility>

#include "base/index.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace penstock {
namespace {

// A pause takes 10 to 140 cycles, depending on the core: 5 to 10 microseconds in total, about the
// cost of putting a thread to sleep and waking it.
constexpr int kSpin = 200;

// If ranks share cores: how often a waiter yields before it goes to sleep. With 8 ranks on 2 cores,
// an action takes 1.0 us with yielding and 1.5 us without, because neither side calls the kernel's
// futex. More yields change nothing.
constexpr int kYields = 4;

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

std::uint32_t EmptyFor(std::int64_t round) { return static_cast<std::uint32_t>(round) * 2; }

}  // namespace

struct alignas(64) ThreadTransport::Slot {
  std::atomic<std::uint32_t> state{0};
  int from = -1;
  int to = -1;
  Message message;
};

// A rank's thread waits here, for one slot at a time.
struct alignas(64) ThreadTransport::Waiter {
  std::atomic<int> slot{-1};
  std::atomic<std::uint32_t> bell{0};
};

ThreadTransport::ThreadTransport(const MessageMap& messages, const Options& options)
    : slots_(std::make_unique<Slot[]>(Index(messages.slots()))),
      waiters_(std::make_unique<Waiter[]>(Index(messages.ranks()))),
      ranks_(messages.ranks()) {
  const bool own_core = static_cast<unsigned>(ranks_) <= std::thread::hardware_concurrency();
  spin_ = options.spin.value_or(own_core ? kSpin : 0);
  for (int slot = 0; slot < messages.slots(); ++slot) {
    slots_[slot].from = messages.from_rank(slot);
    slots_[slot].to = messages.to_rank(slot);
  }
}

ThreadTransport::~ThreadTransport() = default;

void ThreadTransport::Send(int slot, std::int64_t round, Message message) {
  Slot& s = slots_[slot];
  const std::uint32_t empty = EmptyFor(round);
  if (s.state.load(std::memory_order_acquire) != empty && !WaitFor(s.from, slot, empty)) return;
  s.message = std::move(message);
  s.state.store(empty + 1, std::memory_order_seq_cst);
  Wake(s.to, slot);
}

bool ThreadTransport::Receive(int slot, std::int64_t round, Message& message) {
  Slot& s = slots_[slot];
  const std::uint32_t full = EmptyFor(round) + 1;
  if (s.state.load(std::memory_order_acquire) != full && !WaitFor(s.to, slot, full)) return false;
  message = std::move(s.message);
  s.state.store(full + 1, std::memory_order_seq_cst);
  Wake(s.from, slot);
  return true;
}

bool ThreadTransport::HasArrived(int slot, std::int64_t round) const {
  return slots_[slot].state.load(std::memory_order_acquire) == EmptyFor(round) + 1;
}

// The waiter announces the slot that it waits for and then checks the slot again; a thread that
// changes a slot checks afterwards which waiter waits for it. All four accesses are sequentially
// consistent, so one side sees the other. The bell is read before the last check, so no ring in
// between is lost.
bool ThreadTransport::WaitFor(int rank, int slot, std::uint32_t state) {
  const std::atomic<std::uint32_t>& current = slots_[slot].state;
  for (int i = 0; i < spin_; ++i) {
    if (current.load(std::memory_order_acquire) == state) return true;
    Pause();
  }
  for (int i = 0; i < (spin_ == 0 ? kYields : 0); ++i) {
    std::this_thread::yield();
    if (current.load(std::memory_order_acquire) == state) return true;
  }
  Waiter& waiter = waiters_[rank];
  bool arrived = false;
  while (true) {
    const std::uint32_t bell = waiter.bell.load(std::memory_order_seq_cst);
    waiter.slot.store(slot, std::memory_order_seq_cst);
    arrived = current.load(std::memory_order_seq_cst) == state;
    if (arrived || aborted()) break;
    waiter.bell.wait(bell, std::memory_order_seq_cst);
  }
  waiter.slot.store(-1, std::memory_order_relaxed);
  return arrived;
}

void ThreadTransport::Wake(int rank, int slot) {
  Waiter& waiter = waiters_[rank];
  if (waiter.slot.load(std::memory_order_seq_cst) != slot) return;
  waiter.bell.fetch_add(1, std::memory_order_seq_cst);
  waiter.bell.notify_one();
}

void ThreadTransport::WakeAll() {
  for (int rank = 0; rank < ranks_; ++rank) {
    Waiter& waiter = waiters_[rank];
    waiter.bell.fetch_add(1, std::memory_order_seq_cst);
    waiter.bell.notify_all();
  }
}

}  // namespace penstock
