// FullTensors: the whole tensors of a stage's sharded parameters, in one buffer that exists only
// while they are used. Private to train/.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "train/shards/shards.h"

namespace penstock {

class FullTensors {
 public:
  // `tensors` are by parameter, all of one dtype, each contiguous in a storage of its own that
  // views of it may share. Those of sharded parameters lose their memory. `shards` must outlive the
  // object.
  FullTensors(const Shards& shards, std::vector<at::Tensor> tensors);

  bool exist() const { return buffer_.defined(); }
  // Gives the tensors memory with unspecified values, and returns all of it in the order of the
  // sequence (see Shards). Requires: they do not exist.
  const at::Tensor& Allocate();
  // Takes the memory away.
  void Free();
  // Returns all of it, while it exists.
  const at::Tensor& buffer() const { return buffer_; }
  // Returns the bytes that the memory has while it exists.
  std::int64_t bytes() const;

 private:
  void PointTo(char* memory);

  const Shards& shards_;
  std::vector<at::Tensor> tensors_;
  at::Tensor buffer_;
};

}  // namespace penstock
