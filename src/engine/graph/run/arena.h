// Memory of a thread for values that do not outlive a run of a program.
//
// Kernels allocate their results by libtorch's allocator, which the arena wraps. Before each call,
// the program passes the blocks that its memory plan has for the results of the call. An allocation
// of the size of a block gets that block, and any other goes to the wrapped allocator. This needs
// no out= forms of ops. A scratch allocation of the same size may get the block of a result, and
// the wrapped allocator then serves the result; this is correct, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock {

struct PlannedBlock {
  std::int64_t bytes;
  std::int64_t offset;
};

class Arena {
 public:
  // Returns the calling thread's arena. The first call in a process wraps libtorch's allocator.
  static Arena& OfThread();

  Arena() = default;
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Grows the arena to `bytes`. Requires: no block is in use.
  void Reserve(std::int64_t bytes);
  // Replaces the blocks that allocations may get. `blocks` must live until the next call.
  void Expect(std::span<const PlannedBlock> blocks) {
    blocks_ = blocks;
    taken_ = 0;
  }
  // Returns an unused block of this size, or null. Only the first 64 expected blocks are used.
  void* Take(std::size_t bytes);
  // Whether the memory is a part of the arena.
  bool Has(const void* memory) const {
    const auto* const at = static_cast<const std::byte*>(memory);
    return at >= memory_ && at < memory_ + bytes_;
  }

  // Returns the number of allocations that got a block.
  std::int64_t hits() const { return hits_; }

 private:
  std::byte* memory_ = nullptr;
  std::int64_t bytes_ = 0;
  std::span<const PlannedBlock> blocks_;
  std::uint64_t taken_ = 0;  // bits by block
  std::int64_t hits_ = 0;
};

}  // namespace penstock
