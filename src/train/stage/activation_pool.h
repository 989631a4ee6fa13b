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
  class Parcel {
   public:
    bool empty() const { return contents_.empty(); }

   private:
    friend class ActivationPool;
    enum class State : std::uint8_t { kLeaving, kAway, kBack };
    struct Content {
      std::size_t place;  // in what it was taken from
      at::Tensor tensor;  // undefined while it is away
      std::vector<std::int64_t> sizes, strides;
      c10::ScalarType dtype;
      std::int64_t offset;  // in the file
      std::int64_t bytes;
    };

    State state_ = State::kBack;
    bool reloads_ = false;  // a reload was asked for
    bool moves_ = false;    // one of the threads works on it
    std::vector<Content> contents_;
    std::int64_t offset_ = 0, room_ = 0;  // of the file; 0 bytes until the first use
    std::atomic<std::int64_t>* away_ = nullptr;
  };

  // `folder` holds the file. Errors: kUnavailable where none can be made there.
  static Result<std::unique_ptr<ActivationPool>> Make(const std::string& folder);
  // Ends what was begun.
  ~ActivationPool();
  ActivationPool(const ActivationPool&) = delete;
  ActivationPool& operator=(const ActivationPool&) = delete;

  // Begins to move all dense tensors of `held` away, which are undefined there from now on. Their
  // bytes are added to `bytes_away` as they come to lie in the file alone. Requires: the parcel is
  // empty.
  void Offload(std::span<at::Tensor> held, std::atomic<std::int64_t>& bytes_away, Parcel& parcel);
  // Begins to bring them back, behind their leaving; they count as away until that has begun.
  void Reload(Parcel& parcel);
  // Waits until they are back, and puts them where they were taken from. Throws std::runtime_error
  // where the file could not be written or read.
  void Await(std::span<at::Tensor> held, Parcel& parcel);
  // Waits until nothing of the parcel is on its way, whether or not it gets there, and forgets it.
  void Drop(Parcel& parcel);

 private:
  explicit ActivationPool(int file) : file_(file) {}

  void Start();
  // The two threads.
  void MoveOut();
  void MoveBack();
  // The next parcel to move; null at the end.
  Parcel* Next(std::deque<Parcel*>& queue, Parcel::State ready);
  void Write(Parcel& parcel);
  void Read(Parcel& parcel);
  void Done(Parcel& parcel, Parcel::State state, const std::string& error);

  const int file_;
  std::int64_t size_ = 0;  // of the file
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Parcel*> leaving_, coming_;
  std::string error_;  // the first one
  bool ending_ = false;
  std::thread out_, back_;
};

}  // namespace penstock
