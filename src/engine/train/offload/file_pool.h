// FilePool: an ActivationPool in a file. For tensors on the CPU.
//
// Two threads move data: one offloads, one reloads. The file has no name, so the kernel removes it
// however the process ends. A transfer keeps its range of the file, so the file does not grow after
// the first step.
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
#include "train/offload/activation_pool.h"

namespace penstock {

class FilePool final : public ActivationPool {
 public:
  // Creates a pool with its file in `folder`. Errors: kUnavailable if the file cannot be created.
  static Result<std::unique_ptr<FilePool>> Make(const std::string& folder);
  ~FilePool() override;

  // Counts the bytes of each tensor after it was written.
  void Offload(std::span<at::Tensor> slots, std::atomic<std::int64_t>& offloaded_bytes,
               Transfer& transfer) override;
  void Reload(Transfer& transfer) override;
  void Await(std::span<at::Tensor> slots, Transfer& transfer) override;
  void Drop(Transfer& transfer) override;

 private:
  struct InFile final : Moved {
    enum class State : std::uint8_t { kOffloading, kOffloaded, kInMemory };
    struct Content {
      std::size_t slot;   // index in the span given to Offload
      at::Tensor tensor;  // undefined while it is only in the file
      std::vector<std::int64_t> sizes, strides;
      c10::ScalarType dtype;
      std::int64_t offset;  // in the file
      std::int64_t bytes;
    };

    bool empty() const override { return contents.empty(); }

    // Guarded by the pool's mutex.
    State state = State::kInMemory;
    bool reload_requested = false;
    bool in_flight = false;  // a thread of the pool moves it

    // Used by the pool's threads while the transfer is queued or in flight, else by the rank's.
    std::vector<Content> contents;
    std::int64_t offset = 0, room = 0;  // of its range in the file
    std::atomic<std::int64_t>* offloaded_bytes = nullptr;
  };

  explicit FilePool(int file) : file_(file) {}

  void Start();
  // The bodies of the two threads.
  void RunOffloads();
  void RunReloads();
  // Waits for the next offload or reload and removes it from its queue. Returns null when the pool
  // ends.
  InFile* Next(bool reload);
  bool HasNext(bool reload) PENSTOCK_REQUIRES(mutex_);
  std::deque<InFile*>& QueueOf(bool reload) PENSTOCK_REQUIRES(mutex_) {
    return reload ? reloads_ : offloads_;
  }
  void Write(InFile& transfer);
  void Read(InFile& transfer);
  void Done(InFile& transfer, InFile::State state, const std::string& error);

  const int file_;
  std::int64_t size_ = 0;  // of the file
  Mutex mutex_;
  CondVar changed_;
  std::deque<InFile*> offloads_ PENSTOCK_GUARDED_BY(mutex_);
  std::deque<InFile*> reloads_ PENSTOCK_GUARDED_BY(mutex_);
  std::string error_ PENSTOCK_GUARDED_BY(mutex_);  // the first one; nothing moves after it
  bool ending_ PENSTOCK_GUARDED_BY(mutex_) = false;
  std::thread offload_thread_, reload_thread_;
};

}  // namespace penstock
