// Flat tensors that stages send to each other. Private to train/.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <stdexcept>
#include <utility>
#include <vector>

#include "runtime/message.h"
#include "train/message/tensor_message.h"

namespace penstock {

// Returns the elements from `begin` on in the order of memory.
inline at::Tensor InMemory(const at::Tensor& tensor, std::int64_t begin, std::int64_t size) {
  return tensor.as_strided({size}, {1}, tensor.storage_offset() + begin);
}

// Returns `kept`, or a new tensor in its place if a reader still holds it. On a device, a reader
// may have dropped what it is still going to read.
at::Tensor& Unread(std::int64_t elements, const at::TensorOptions& options, at::Tensor& kept);

inline Message MessageOf(at::Tensor tensor) { return ToMessage(std::span(&tensor, 1)); }

// Returns the message's tensors, which have one dimension. Throws std::runtime_error if it has
// others.
template <std::size_t n>
std::array<at::Tensor, n> TensorsOf(Message message, const std::array<TensorType, n>& types,
                                    const char* what, c10::Device device) {
  if (message.bytes() != MessageBytes(types)) {
    throw std::runtime_error(fmt::format("received {} bytes of {} from a replica, not {}",
                                         message.bytes(), what, MessageBytes(types)));
  }
  std::array<at::Tensor, n> tensors;
  FromMessage(std::move(message), types, tensors, device);
  return tensors;
}

// Sets `sum`, which may be one of the parts, to their sum. 16-bit parts are added in fp32.
void SumParts(const std::vector<at::Tensor>& parts, const at::Tensor& sum);

}  // namespace penstock
