// The memory of the test device, mapped twice: where the host sees it, accesses fault.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "tests/engine/device/order.h"

namespace penstock::testing {

struct Block {
  char* address = nullptr;  // on the device
  std::size_t bytes = 0;
  int device = 0;
  int stream = -1;                  // that allocated it, and may use it again once it is freed
  int pool = 0;                     // of graphs, which alone may use it again; 0: none
  const void* recording = nullptr;  // that allocated it
  Accesses accesses;
  std::vector<int> uses = {};  // other streams
};

// Threads: one at a time, except for Contains and Shadow.
class DeviceMemory {
 public:
  DeviceMemory();

  // Aborts if nothing is left.
  Block* Allocate(std::size_t bytes, int stream, int pool);
  void Free(Block* block);

  // Bytes that are allocated, now and at most since the last call of ResetPeak.
  std::size_t allocated() const { return allocated_; }
  std::size_t peak() const { return peak_; }
  void ResetPeak() { peak_ = allocated_; }

  // The block that contains the address, nullptr if it is not the device's.
  Block* At(const void* address);

  bool Contains(const void* address) const;
  // Where tasks of the device access what is at an address of the device.
  char* Shadow(const void* address) const;

 private:
  char* device_ = nullptr;
  char* shadow_ = nullptr;
  std::size_t used_ = 0;
  std::size_t allocated_ = 0, peak_ = 0;
  std::map<char*, std::unique_ptr<Block>> blocks_;
  std::map<std::tuple<int, int, std::size_t>, std::vector<Block*>> free_;
};

}  // namespace penstock::testing
