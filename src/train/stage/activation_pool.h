// ActivationPool: the slower memory that OFFLOAD moves activations to, a file.
//
// A pool serves one rank. Two threads move data in parallel with the rank's compute: one offloads,
// one reloads, each in the order of the requests, like the two links of the simulator
// (simulate/side_work.h). The file has no name, so the kernel removes it however the process ends.
// A transfer keeps its range of the file, so the file does not grow after the first step. Threads:
// only the rank's thread calls the methods.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"

namespace penstock {

class ActivationPool {
 public:
  // The offload transfer of one microbatch of one stage. The stage owns it, and must not destroy it
  // between Offload and the return of Await or Drop, which empty it.
  class Transfer {
   public:
    bool empty() const { return contents_.empty(); }

   private:
    friend class ActivationPool;
    enum class State : std::uint8_t { kOffloading, kOffloaded, kInMemory };
    struct Content {
      std::size_t slot;   // index in the span given to Offload
      at::Tensor tensor;  // undefined while it is only in the file
      std::vector<std::int64_t> sizes, strides;
      c10::ScalarType dtype;
      std::int64_t offset;  // in the file
      std::int64_t bytes;
    };

    // Guarded by the pool's mutex.
    State state_ = State::kInMemory;
    bool reload_requested_ = false;
    bool in_flight_ = false;  // a thread of the pool moves it

    // Used by the pool's threads while the transfer is queued or in flight, else by the rank's.
    std::vector<Content> contents_;
    std::int64_t offset_ = 0, room_ = 0;  // of its range in the file
    std::atomic<std::int64_t>* offloaded_bytes_ = nullptr;
  };

  // Creates a pool with its file in `folder`. Errors: kUnavailable if the file cannot be created.
  static Result<std::unique_ptr<ActivationPool>> Make(const std::string& folder);
  // Waits for the transfers in flight.
  ~ActivationPool();
  ActivationPool(const ActivationPool&) = delete;
  ActivationPool& operator=(const ActivationPool&) = delete;

  // Starts to move all dense tensors of `slots` to the file, and resets them in `slots`. Adds the
  // bytes of each to `offloaded_bytes` after it was written. Requires: the transfer is empty.
  void Offload(std::span<at::Tensor> slots, std::atomic<std::int64_t>& offloaded_bytes,
               Transfer& transfer);
  // Requests that the tensors be read back after they were written. Subtracts their bytes when
  // reading starts.
  void Reload(Transfer& transfer);
  // Waits for a requested reload and moves the tensors back to their slots. Returns at once if the
  // transfer is empty. Throws std::runtime_error if the file could not be written or read.
  void Await(std::span<at::Tensor> slots, Transfer& transfer);
  // Waits until the transfer is not in flight, whether or not it succeeded, and empties it.
  void Drop(Transfer& transfer);

 private:
  explicit ActivationPool(int file) : file_(file) {}

  void Start();
  // The bodies of the two threads.
  void RunOffloads();
  void RunReloads();
  // Waits for the next offload or reload and removes it from its queue. Returns null when the pool
  // ends.
  Transfer* Next(bool reload);
  bool HasNext(bool reload) PENSTOCK_REQUIRES(mutex_);
  std::deque<Transfer*>& QueueOf(bool reload) PENSTOCK_REQUIRES(mutex_) {
    return reload ? reloads_ : offloads_;
  }
  void Write(Transfer& transfer);
  void Read(Transfer& transfer);
  void Done(Transfer& transfer, Transfer::State state, const std::string& error);

  const int file_;
  std::int64_t size_ = 0;  // of the file
  Mutex mutex_;
  CondVar changed_;
  std::deque<Transfer*> offloads_ PENSTOCK_GUARDED_BY(mutex_);
  std::deque<Transfer*> reloads_ PENSTOCK_GUARDED_BY(mutex_);
  std::string error_ PENSTOCK_GUARDED_BY(mutex_);  // the first one; nothing moves after it
  bool ending_ PENSTOCK_GUARDED_BY(mutex_) = false;
  std::thread offload_thread_, reload_thread_;
};

}  // namespace penstock
