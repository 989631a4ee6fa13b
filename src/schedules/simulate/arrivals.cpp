#include "simulate/arrivals.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace penstock {
namespace {

constexpr std::size_t kLine = 64 / sizeof(double);  // slots in a cache line
constexpr std::size_t kHugePage = std::size_t{2} << 20;

// The number of slots per stage: an odd number of cache lines, so that the same microbatch indices
// of many stages, which are in use at the same time, do not map to one set of the cache.
std::size_t PaddedStride(std::size_t indices) {
  const std::size_t lines = (2 * indices + kLine - 1) / kLine;
  return (lines | 1) * kLine;
}

}  // namespace

Arrivals::Arrivals(std::size_t stages, std::size_t indices)
    : stride_(PaddedStride(indices)), size_(stages * stride_) {
  std::size_t bytes = size_ * sizeof(double);
  const std::size_t alignment = bytes < kHugePage ? 64 : kHugePage;
  bytes = (bytes + alignment - 1) / alignment * alignment;
  slots_.reset(static_cast<double*>(std::aligned_alloc(alignment, bytes)));
  if (bytes > 0 && slots_ == nullptr) throw std::bad_alloc();
  // This is only a hint. Without huge pages the first touch of each small page costs more than the
  // work.
  if (alignment == kHugePage) madvise(slots_.get(), bytes, MADV_HUGEPAGE);
  Clear();
}

void Arrivals::Clear() { std::fill_n(slots_.get(), size_, kNotComputed); }

}  // namespace penstock
