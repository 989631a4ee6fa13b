// The memory that runs of a thread share for what does not outlive a run, behind libtorch's own
// allocator.
//
// Kernels allocate their results themselves. Before each call the program says which blocks of its
// memory plan the call's results are to lie in; an allocation of such a size gets the block, any
// other goes where it always went. So a plan is kept without a form of every op that writes into
// given memory. A scratch allocation of a result's size may take its block: the result is then
// allocated as ever, and both are right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock {

// A block of the arena for one result.
struct PlannedBlock {
  std::int64_t bytes;
  std::int64_t offset;
};

class Arena {
 public:
  // The calling thread's. Registers itself with libtorch at the first call of the process.
  static Arena& OfThread();

  Arena() = default;
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Grows to `bytes`. Requires: no block of it is in use.
  void Reserve(std::int64_t bytes);
  // The blocks for the allocations that come next, until the next call. The span must stay.
  void Expect(std::span<const PlannedBlock> blocks) {
    blocks_ = blocks;
    taken_ = 0;
  }
  // The block for an allocation, null where none is expected. At most 64 blocks a call are.
  void* Take(std::size_t bytes);

  // Allocations of this thread that got a block, ever.
  std::int64_t hits() const { return hits_; }

 private:
  std::byte* memory_ = nullptr;
  std::int64_t bytes_ = 0;
  std::span<const PlannedBlock> blocks_;
  std::uint64_t taken_ = 0;  // bits by block
  std::int64_t hits_ = 0;
};

}  // namespace penstock
