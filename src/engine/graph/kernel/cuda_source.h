// The CUDA source of kernels.
//
// Without sums, each thread computes a few points. With sums, a block of threads computes a row,
// and its inner loop runs once per level of sums, as on CPUs. Sums are in an order that depends on
// the sizes alone, so results are deterministic.
#pragma once

#include <string>
#include <string_view>

#include "graph/kernel/kernel.h"

namespace penstock {

// Elements that a thread loads at once if all accesses are aligned to as many.
inline constexpr int kCudaVector = 4;

struct CudaGrid {
  unsigned blocks = 1, threads = 1;
};

// Returns how many elements a thread may load at once, 1 or kCudaVector, if all tensors begin at a
// multiple of 16 bytes.
int VectorOf(const Kernel& kernel);
CudaGrid GridOf(const Kernel& kernel, int vector);
// Returns the source of a kernel whose parameters are the addresses of the inputs, then of the
// outputs. It must follow CudaPrelude(). Requires: the kernel accumulates
// nothing, and has fewer than 2^31 points; `vector` is 1 or VectorOf().
std::string CudaSourceOf(const Kernel& kernel, std::string_view name, int vector);
std::string_view CudaPrelude();

}  // namespace penstock
