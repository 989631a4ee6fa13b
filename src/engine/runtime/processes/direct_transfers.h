// DirectTransfers: memory of devices that moves between processes without a copy on the host, by a
// library that accesses it itself, such as an MPI that is built for CUDA or ROCm.
//
// Thread-safe. What one thread sends to a process arrives in the order of the calls.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace penstock {

class DirectTransfers {
 public:
  // A transfer in flight. Its memory must exist until it is done, or until it is destroyed.
  class Transfer {
   public:
    virtual ~Transfer() = default;
    // Never waits. Throws std::runtime_error if it has failed, or the other process has ended.
    virtual bool IsDone() = 0;
  };

  virtual ~DirectTransfers() = default;

  // The device must be done with the memory: the library does not wait for its streams. The size is
  // the same on both sides. They never wait, and throw std::runtime_error if the library refuses.
  virtual std::unique_ptr<Transfer> Send(int to, std::span<const std::byte> data) = 0;
  virtual std::unique_ptr<Transfer> Receive(int from, std::span<std::byte> data) = 0;
};

}  // namespace penstock
