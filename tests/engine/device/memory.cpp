#include "tests/engine/device/memory.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

namespace penstock::testing {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 36;  // of address space
constexpr std::size_t kLeastBlock = 512;

}  // namespace

DeviceMemory::DeviceMemory() {
  const int file = memfd_create("device", 0);
  TORCH_CHECK(file >= 0 && ftruncate(file, kBytes) == 0);
  const auto map = [&](int access) {
    void* const address = mmap(nullptr, kBytes, access, MAP_SHARED | MAP_NORESERVE, file, 0);
    TORCH_CHECK(address != MAP_FAILED);
    return static_cast<char*>(address);
  };
  device_ = map(PROT_NONE);
  shadow_ = map(PROT_READ | PROT_WRITE);
}

Block* DeviceMemory::Allocate(std::size_t bytes, int stream, int pool) {
  const std::size_t size = std::bit_ceil(std::max(bytes, kLeastBlock));
  peak_ = std::max(peak_, allocated_ += size);
  std::vector<Block*>& free = free_[{stream, pool, size}];
  if (!free.empty()) {
    Block* const block = free.back();
    free.pop_back();
    return block;
  }
  TORCH_CHECK(used_ + size <= kBytes, "the test device has no memory left");
  auto block = std::make_unique<Block>();
  block->address = device_ + used_;
  block->bytes = size;
  block->stream = stream;
  block->pool = pool;
  used_ += size;
  return (blocks_[block->address] = std::move(block)).get();
}

void DeviceMemory::Free(Block* block) {
  allocated_ -= block->bytes;
  free_[{block->stream, block->pool, block->bytes}].push_back(block);
}

Block* DeviceMemory::At(const void* address) {
  auto* const at = const_cast<char*>(static_cast<const char*>(address));
  const auto next = blocks_.upper_bound(at);
  if (next == blocks_.begin()) return nullptr;
  Block* const block = std::prev(next)->second.get();
  return at < block->address + block->bytes ? block : nullptr;
}

bool DeviceMemory::Contains(const void* address) const {
  return address >= device_ && address < device_ + kBytes;
}

char* DeviceMemory::Shadow(const void* address) const {
  return shadow_ + (static_cast<const char*>(address) - device_);
}

}  // namespace penstock::testing
