// ActivationPool: the slower memory that OFFLOAD moves activations to. Private to train/.
//
// A pool serves one rank, whose thread alone calls it. Data moves in both directions in parallel
// with the rank's compute, each in the order of the requests, like the two links of the simulator
// (simulate/side_work.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

namespace penstock {

class ActivationPool {
 public:
  // What a pool keeps of one microbatch of one stage.
  class Moved {
   public:
    virtual ~Moved() = default;
    virtual bool empty() const = 0;
  };
  // The offload transfer of one microbatch of one stage. The stage owns it, and must not destroy it
  // between Offload and the return of Await or Drop, which empty it.
  class Transfer {
   public:
    bool empty() const { return !moved || moved->empty(); }

    std::unique_ptr<Moved> moved;  // the pool's; null before the first Offload
  };

  ActivationPool() = default;
  ActivationPool(const ActivationPool&) = delete;
  ActivationPool& operator=(const ActivationPool&) = delete;
  // Waits for the transfers in flight.
  virtual ~ActivationPool() = default;

  // Starts to move all dense tensors of `slots` to the pool, and resets them in `slots`. Adds the
  // bytes of each to `offloaded_bytes`. Requires: the transfer is empty.
  virtual void Offload(std::span<at::Tensor> slots, std::atomic<std::int64_t>& offloaded_bytes,
                       Transfer& transfer) = 0;
  // Requests that the tensors be read back after they have arrived. Subtracts their bytes when
  // reading starts.
  virtual void Reload(Transfer& transfer) = 0;
  // Waits for a requested reload and moves the tensors back to their slots. Returns at once if the
  // transfer is empty. Throws std::runtime_error if the data could not be moved.
  virtual void Await(std::span<at::Tensor> slots, Transfer& transfer) = 0;
  // Waits until the transfer is not in flight, whether or not it succeeded, and empties it.
  virtual void Drop(Transfer& transfer) = 0;
};

// Whether OFFLOAD moves the tensor.
inline bool IsOffloaded(const at::Tensor& tensor) {
  return tensor.defined() && tensor.numel() > 0 && tensor.is_non_overlapping_and_dense();
}

}  // namespace penstock
