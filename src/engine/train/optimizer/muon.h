// Muon's update of a matrix (Jordan et al. 2024): the nearest semi-orthogonal matrix of its
// momentum, by Newton-Schulz iterations. All in fp32.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace penstock {

// A parameter as matrices: itself, or with three dimensions, one per index of the first one.
struct Matrices {
  std::int64_t count = 0, rows = 0, columns = 0;

  // Requires: two or three dimensions.
  explicit Matrices(const std::vector<std::int64_t>& shape)
      : count(shape.size() == 3 ? shape[0] : 1),
        rows(shape[shape.size() - 2]),
        columns(shape.back()) {}
  std::int64_t elements() const { return rows * columns; }  // of one matrix
};

// Returns the factor of the learning rate for a matrix. "match_rms_adamw": 0.2 sqrt(max(rows,
// columns)), so that updates are as large as AdamW's (Liu et al., Muon is Scalable, 2025).
// "original": sqrt(max(1, rows / columns)).
double MuonScale(std::string_view adjust_lr_fn, std::int64_t rows, std::int64_t columns);

// average += (value - average) * weight, elementwise over contiguous tensors, in fp32. The value
// may be bf16. The result of an element does not depend on its place or on the number of threads.
void Blend(const at::Tensor& average, const at::Tensor& value, double weight);
// to = the Nesterov direction of a momentum that Blend has updated with this gradient, which may be
// bf16, and weight.
void NesterovDirection(const at::Tensor& to, const at::Tensor& momentum, const at::Tensor& gradient,
                       double weight);

// The memory for the iterations, for matrices of several sizes, one after the other.
class Orthogonalizer {
 public:
  // Makes room for a matrix of this size. Call it for each size before the others below.
  void Reserve(const Matrices& size, c10::Device device = c10::kCPU);
  std::int64_t bytes() const;
  // Returns the bytes for these sizes, without an object.
  static std::int64_t BytesFor(const std::vector<Matrices>& sizes);

  // Returns the place for a matrix, flat, and replaces it by its orthogonalization. The result is
  // valid until the next call of Input.
  at::Tensor Input(const Matrices& size);
  at::Tensor Run(const Matrices& size);

 private:
  at::Tensor x_, next_;          // of the largest matrix
  at::Tensor square_, product_;  // of the largest smaller dimension
};

}  // namespace penstock
