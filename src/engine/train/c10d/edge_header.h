// What is sent ahead of each frame. Private to train/c10d.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstdint>
#include <cstring>

#include "runtime/processes/process_group.h"

namespace penstock {

struct EdgeHeader {
  std::int64_t channel = 0;  // or one of those below
  FrameTag tag = {};
  std::int64_t bytes = 0;    // of the message, or of the types of its tensors
  std::int64_t tensors = 0;  // that follow on the device; 0: the message is its bytes
};
static_assert(std::is_trivially_copyable_v<EdgeHeader>);

// Channels of frames without a message.
inline constexpr std::int64_t kEdgeBeat = -1;  // the sender lives
inline constexpr std::int64_t kEdgeEnd = -2;   // its last frame

inline constexpr int kEdgeTag = 0;  // of c10d; an edge has one order

inline at::Tensor BytesTensor(std::int64_t bytes) { return at::empty({bytes}, at::kByte); }

inline at::Tensor ToTensor(const EdgeHeader& header) {
  at::Tensor tensor = BytesTensor(sizeof(header));
  std::memcpy(tensor.mutable_data_ptr(), &header, sizeof(header));
  return tensor;
}

}  // namespace penstock
