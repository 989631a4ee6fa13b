#include "graph/run/arena.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "base/index.h"

namespace penstock {
namespace {

constexpr std::size_t kBlockAlignment = 64;
constexpr std::size_t kMaxBlocks = 64;
constexpr std::uint8_t kPriority = 10;  // above the default allocator's

thread_local Arena* of_thread = nullptr;  // null until the thread has run a program

// Frees memory of the wrapped allocator. A block of an arena stays with the arena.
c10::DeleterFnPtr free_wrapped = nullptr;
void Free(void* memory) {
  if (of_thread == nullptr || !of_thread->Has(memory)) free_wrapped(memory);
}

// Allocates from the thread's arena if it has a block of the size, else by the wrapped allocator.
class PlannedAllocator final : public c10::Allocator {
 public:
  explicit PlannedAllocator(c10::Allocator* wrapped) : wrapped_(wrapped) {
    free_wrapped = wrapped->raw_deleter();
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    if (of_thread != nullptr) {
      if (void* const block = of_thread->Take(bytes)) {
        // The context is the block, because raw_allocate (oneDNN's scratch memory) requires it.
        return {block, block, [](void*) {}, c10::Device(c10::kCPU)};
      }
    }
    return wrapped_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return Free; }
  void copy_data(void* to, const void* from, std::size_t count) const override {
    wrapped_->copy_data(to, from, count);
  }

 private:
  c10::Allocator* wrapped_;
};

void Register() {
  // Never destroyed: tensors may outlive every other static.
  static auto* const allocator = new PlannedAllocator(c10::GetCPUAllocator());
  static const bool registered = [] {
    c10::SetCPUAllocator(allocator, kPriority);
    return true;
  }();
  (void)registered;
}

}  // namespace

Arena& Arena::OfThread() {
  thread_local Arena arena;
  if (of_thread == nullptr) {
    Register();
    of_thread = &arena;
  }
  return arena;
}

Arena::~Arena() {
  of_thread = nullptr;
  std::free(memory_);
}

void Arena::Reserve(std::int64_t bytes) {
  if (bytes <= bytes_) return;
  std::free(memory_);
  const std::size_t size = (Index(bytes) + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
  memory_ = static_cast<std::byte*>(std::aligned_alloc(kBlockAlignment, size));
  if (memory_ == nullptr) throw std::bad_alloc();
  bytes_ = bytes;
}

void* Arena::Take(std::size_t bytes) {
  const std::size_t count = std::min(blocks_.size(), kMaxBlocks);
  for (std::size_t i = 0; i < count; ++i) {
    if (Index(blocks_[i].bytes) != bytes || (taken_ >> i & 1U) != 0) continue;
    taken_ |= std::uint64_t{1} << i;
    ++hits_;
    return memory_ + blocks_[i].offset;
  }
  return nullptr;
}

}  // namespace penstock
