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
  // views of it may share. Tensors of sharded parameters lose their memory. `shards` must outlive
  // the object.
  FullTensors(const Shards& shards, std::vector<at::Tensor> tensors);

  bool exist() const { return buffer_.defined(); }
  // Gives the tensors memory with unspecified values. Requires: they do not exist.
  void Allocate();
  // Gives the tensors this memory, which has all elements in the order of the sequence (see
  // Shards). Requires: they do not exist.
  void Use(at::Tensor buffer);
  // Takes the memory away.
  void Free();
  // Returns a tensor of the whole sequence, which has the same memory, or none.
  const at::Tensor& sequence() const { return sequence_; }
  // Returns the bytes that the memory has while it exists.
  std::int64_t bytes() const;

 private:
  void PointTo(char* memory);

  const Shards& shards_;
  std::vector<at::Tensor> tensors_;
  at::Tensor sequence_;
  at::Tensor buffer_;  // owns the memory
};

}  // namespace penstock
