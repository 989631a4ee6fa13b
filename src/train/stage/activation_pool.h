// The slower memory that OFFLOAD moves activations to: a file.
//
// A pool serves one rank. Two threads move data in parallel with its compute, one out and one back,
// each in the order of the requests, like the two links of the simulator (simulate/side_work.h).
// The file has no name, so it disappears however the process ends. A transfer keeps its place in
// the file, so nothing grows after the first step.
// Threads: the rank's thread calls every method.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"

namespace penstock {

class ActivationPool {
 public:
  // The offload transfer of one microbatch of one stage. Belongs to the stage, which keeps it until
  // it is empty again, that is, until Await or Drop returns.
  class Transfer {
   public:
    bool empty() const { return contents_.empty(); }

   private:
    friend class ActivationPool;
    enum class State : std::uint8_t { kOffloading, kOffloaded, kInMemory };
    struct Content {
      std::size_t slot;   // where it came from
      at::Tensor tensor;  // undefined while it is only in the file
      std::vector<std::int64_t> sizes, strides;
      c10::ScalarType dtype;
      std::int64_t offset;  // in the file
      std::int64_t bytes;
    };

    State state_ = State::kInMemory;
    bool reload_requested_ = false;  // a reload was requested
    bool in_flight_ = false;         // a thread is working on it
    std::vector<Content> contents_;
    std::int64_t offset_ = 0, room_ = 0;  // in the file; 0 bytes until the first use
    std::atomic<std::int64_t>* offloaded_bytes_ = nullptr;
  };

  // Creates the file in `folder`. Errors: kUnavailable if that fails.
  static Result<std::unique_ptr<ActivationPool>> Make(const std::string& folder);
  // Waits for the transfers in flight.
  ~ActivationPool();
  ActivationPool(const ActivationPool&) = delete;
  ActivationPool& operator=(const ActivationPool&) = delete;

  // Starts to move all dense tensors of `slots` to the file; they are undefined in `slots` from now
  // on. Adds their bytes to `offloaded_bytes` once they are only in the file. Requires: the
  // transfer is empty.
  void Offload(std::span<at::Tensor> slots, std::atomic<std::int64_t>& offloaded_bytes,
               Transfer& transfer);
  // Starts to move them back, after they have been offloaded. They count as offloaded until that
  // starts.
  void Reload(Transfer& transfer);
  // Waits until they are back and moves them to the slots that they came from. Throws
  // std::runtime_error if the file could not be written or read.
  void Await(std::span<at::Tensor> slots, Transfer& transfer);
  // Waits until nothing of the transfer is in flight, whether or not it succeeds, and discards it.
  void Drop(Transfer& transfer);

 private:
  explicit ActivationPool(int file) : file_(file) {}

  void Start();
  // The two threads.
  void RunOffloads();
  void RunReloads();
  // Returns the next transfer to run, or null at the end.
  Transfer* Next(std::deque<Transfer*>& queue, Transfer::State ready);
  void Write(Transfer& transfer);
  void Read(Transfer& transfer);
  void Done(Transfer& transfer, Transfer::State state, const std::string& error);

  const int file_;
  std::int64_t size_ = 0;  // of the file
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Transfer*> offloads_, reloads_;
  std::string error_;  // the first one
  bool ending_ = false;
  std::thread offload_thread_, reload_thread_;
};

}  // namespace penstock
