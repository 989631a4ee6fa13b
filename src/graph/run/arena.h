// The memory that the runs of a thread share for values that do not outlive a run, behind
// libtorch's own allocator.
//
// Kernels allocate their results themselves. Before each call, the program announces the blocks of
// its memory plan for the results of the call. An allocation of such a size gets the block; any
// other goes to the regular allocator. This enforces a plan without an out= form of every op. A
// scratch allocation of the size of a result may take the block of that result, which is then
// allocated regularly; both are correct.
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
  // Returns the calling thread's arena. The first call in the process registers it with libtorch.
  static Arena& OfThread();

  Arena() = default;
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Grows to `bytes`. Requires: no block is in use.
  void Reserve(std::int64_t bytes);
  // Sets the blocks for the next allocations, until the next call. The span must stay valid.
  void Expect(std::span<const PlannedBlock> blocks) {
    blocks_ = blocks;
    taken_ = 0;
  }
  // Returns the block for an allocation, or null if none is expected. Supports at most 64 blocks
  // per call.
  void* Take(std::size_t bytes);

  // The number of allocations of this thread that got a block.
  std::int64_t hits() const { return hits_; }

 private:
  std::byte* memory_ = nullptr;
  std::int64_t bytes_ = 0;
  std::span<const PlannedBlock> blocks_;
  std::uint64_t taken_ = 0;  // bits by block
  std::int64_t hits_ = 0;
};

}  // namespace penstock
