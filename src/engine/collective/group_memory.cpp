#include "collective/group_memory.h"

#include <cstring>

namespace penstock {

void GroupMemory::Copy(const Piece& from, Bytes to) {
  if (!to.empty() && from.data.data() != to.data()) {
    std::memcpy(to.data(), from.data.data(), to.size());
  }
}

void GroupMemory::Sum(const std::vector<Piece>& parts, Bytes sum, ElementType type) {
  std::vector<ConstBytes> data;
  for (const Piece& part : parts) data.push_back(part.data);
  SumInOrder(data, sum, type);
}

GroupMemory::ConstBytes GroupMemory::OnHost(ConstBytes data, std::vector<std::byte>& /*kept*/) {
  return data;
}

}  // namespace penstock
