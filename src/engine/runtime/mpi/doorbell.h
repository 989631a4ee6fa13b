// Doorbell: lets a process sleep until another process of the same machine has sent it a frame.
//
// MPI has no call that waits without polling. So the sender of a frame rings the receiver's bell,
// a futex in memory that the machine's processes share, and the receiver polls MPI only while it
// knows of frames that have not arrived. Frames from other machines ring no bell.
//
// The memory also shows whether the other processes of the machine still run.
//
// Thread-safe.
#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

namespace penstock {

class Doorbell {
 public:
  // Collective over `machine`, the processes of this machine among `processes`. If it is null, all
  // count as remote.
  Doorbell(MPI_Comm processes, MPI_Comm machine);
  // Collective.
  void Free();

  // Returns whether all processes are on this machine.
  bool all_local() const { return all_local_; }
  bool is_local(int process) const { return BellOf(process) != nullptr; }

  // Shows the others that this process makes progress.
  void Beat() { own_->beats.fetch_add(1, std::memory_order_relaxed); }
  // Returns the number of calls of Beat by a process of this machine, modulo 2^32.
  std::uint32_t beats(int process) const {
    return BellOf(process)->beats.load(std::memory_order_relaxed);
  }
  // Returns whether a process of this machine is known to have ended.
  bool HasEnded(int process) const;

  // Notifies a process of this machine that a frame for it has been given to MPI.
  void RingForFrame(int process);
  // Wakes this process's own waiter.
  void RingOwn();

  // While a thread of this process looks for frames itself, frames wake nobody. It must handle the
  // frames that have arrived before EndPoll, or call RingOwn after it.
  void BeginPoll() { own_->pollers.fetch_add(1, std::memory_order_seq_cst); }
  void EndPoll() { own_->pollers.fetch_sub(1, std::memory_order_seq_cst); }

  // Returns the number of frames that processes of this machine have sent here so far, modulo 2^32.
  std::uint32_t frames() const;
  // Returns a number that changes with each ring. Read it before checking for work, and pass it to
  // Wait.
  std::uint32_t rings() const;
  // Sleeps until the bell rings, unless it has rung since rings() returned `seen`, but at most for
  // `limit`.
  void Wait(std::uint32_t seen, std::chrono::microseconds limit);

 private:
  struct Bell {
    alignas(64) std::atomic<std::uint32_t> rings;
    std::atomic<std::uint32_t> frames;
    std::atomic<std::uint32_t> sleeps;   // 1 while its process may be asleep
    std::atomic<std::uint32_t> pollers;  // threads that look for frames
    alignas(64) std::atomic<std::uint32_t> beats;
    std::int32_t pid;
    std::uint64_t pid_namespace;  // in which the pid is valid
  };

  static void Ring(Bell& bell);
  Bell* BellOf(int process) const {
    return process < static_cast<int>(bells_.size()) ? bells_[process] : nullptr;
  }

  MPI_Win window_ = MPI_WIN_NULL;
  std::vector<Bell*> bells_;  // by process; null on another machine
  Bell unshared_{};
  Bell* own_ = &unshared_;
  bool all_local_ = false;
};

}  // namespace penstock
