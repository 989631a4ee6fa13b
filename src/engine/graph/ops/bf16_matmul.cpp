#include "graph/ops/bf16_matmul.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm_cpu_dispatch.h>

#include <algorithm>
#include <memory>
#include <new>

#include "graph/ops/bf16_convert.h"

namespace penstock {
namespace {

// The sizes of a block: large enough that conversion costs a few percent of the multiplication.
constexpr std::int64_t kRows = 512;
constexpr std::int64_t kColumns = 512;
constexpr std::int64_t kDepth = 1024;
// Elements of a block's three matrices, for all matrices of a batch that are multiplied at once.
constexpr std::int64_t kBlockElements = kRows * kDepth + kDepth * kColumns + kRows * kColumns;
constexpr std::int64_t kElementsPerThread = 32768;  // grain of parallel loops

constexpr std::align_val_t kCacheLine{64};

// fp32 memory of a thread. Grows to the size of the largest block.
class Scratch {
 public:
  float* Get(std::int64_t elements) {
    if (elements > size_) {
      memory_.reset(static_cast<float*>(
          ::operator new(static_cast<std::size_t>(elements) * sizeof(float), kCacheLine)));
      size_ = elements;
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(float* memory) const { ::operator delete(memory, kCacheLine); }
  };
  std::unique_ptr<float, Free> memory_;
  std::int64_t size_ = 0;
};

struct Range {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
};
Range BlockAt(std::int64_t begin, std::int64_t block, std::int64_t all) {
  return {begin, std::min(begin + block, all)};
}

const std::uint16_t* Bits(const at::Tensor& tensor) {
  return static_cast<const std::uint16_t*>(tensor.const_data_ptr());
}

// A factor [batch, rows, columns] with unit stride along its rows or its columns.
struct Factor {
  explicit Factor(const at::Tensor& given)
      : tensor(given.stride(2) == 1 || given.stride(1) == 1 ? given : given.contiguous()),
        by_rows(tensor.stride(2) == 1) {}

  // Returns a part of the factor in fp32 with the same memory order.
  at::Tensor Widened(Range batch, Range rows, Range columns, Scratch& scratch) const {
    const Range outer = by_rows ? rows : columns;
    const Range inner = by_rows ? columns : rows;
    const std::int64_t step = tensor.stride(by_rows ? 1 : 2);
    const std::int64_t lines = batch.size() * outer.size(), length = inner.size();
    float* const to = scratch.Get(lines * length);
    const std::uint16_t* const from = Bits(tensor) + inner.begin;
    at::parallel_for(0, lines, std::max<std::int64_t>(1, kElementsPerThread / length),
                     [&](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t i = begin; i < end; ++i) {
                         const std::int64_t matrix = batch.begin + i / outer.size();
                         const std::int64_t line = outer.begin + i % outer.size();
                         WidenBf16(from + matrix * tensor.stride(0) + line * step, to + i * length,
                                   length);
                       }
                     });
    const std::int64_t matrix = outer.size() * length;
    const auto strides = by_rows ? std::array<std::int64_t, 3>{matrix, length, 1}
                                 : std::array<std::int64_t, 3>{matrix, 1, length};
    return at::from_blob(to, {batch.size(), rows.size(), columns.size()}, strides, at::kFloat);
  }

  at::Tensor tensor;
  bool by_rows;
};

// Computes sum = a b, or sum += a b.
void Multiply(const at::Tensor& a, const at::Tensor& b, bool add, at::Tensor& sum) {
  if (a.size(0) == 1) {
    at::Tensor matrix = sum.select(0, 0);
    if (add) {
      at::cpu::addmm_(matrix, a.select(0, 0), b.select(0, 0));
    } else {
      at::cpu::mm_out(matrix, a.select(0, 0), b.select(0, 0));
    }
  } else if (add) {
    at::cpu::baddbmm_(sum, a, b);
  } else {
    at::cpu::bmm_out(sum, a, b);
  }
}

// Writes alpha * sum + beta * added to the result, rounded to bf16.
struct Rounding {
  at::Tensor added;  // expanded to the result; may be undefined
  float beta, alpha;
  at::Tensor result;

  void Write(const float* sum, Range batch, Range rows, Range columns) const {
    auto* const to = static_cast<std::uint16_t*>(result.mutable_data_ptr());
    const std::int64_t length = columns.size();
    at::parallel_for(
        0, batch.size() * rows.size(), std::max<std::int64_t>(1, kElementsPerThread / length),
        [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t matrix = batch.begin + i / rows.size();
            const std::int64_t row = rows.begin + i % rows.size();
            std::uint16_t* const line =
                to + (matrix * result.size(1) + row) * result.size(2) + columns.begin;
            if (!added.defined()) {
              RoundToBf16(sum + i * length, alpha, line, length);
              continue;
            }
            const std::uint16_t* const from = Bits(added) + matrix * added.stride(0) +
                                              row * added.stride(1) +
                                              columns.begin * added.stride(2);
            AddAndRoundToBf16(sum + i * length, alpha, from, added.stride(2), beta, line, length);
          }
        });
  }
};

// Returns the number of matrices of a batch that fit into a block's memory together.
std::int64_t MatricesAtOnce(std::int64_t n, std::int64_t k, std::int64_t m) {
  const std::int64_t rows = std::min(n, kRows), depth = std::min(k, kDepth);
  const std::int64_t columns = std::min(m, kColumns);
  return std::max<std::int64_t>(1,
                                kBlockElements / (rows * depth + depth * columns + rows * columns));
}

}  // namespace

bool IsBf16Product(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == at::kBFloat16 && b.scalar_type() == at::kBFloat16 && a.dim() == 3 &&
         b.dim() == 3 && a.size(0) == b.size(0) && a.size(2) == b.size(1) && a.numel() > 0 &&
         b.numel() > 0;
}

at::Tensor BatchedProduct(const at::Tensor& a, const at::Tensor& b, const at::Tensor& added,
                          float beta, float alpha) {
  thread_local Scratch of_a, of_b, of_sum;
  const std::int64_t batch = a.size(0), n = a.size(1), k = a.size(2), m = b.size(2);
  const Factor left(a), right(b);
  const bool adds = added.defined() && beta != 0;
  at::Tensor result(at::detail::empty_cpu({batch, n, m}, at::kBFloat16));
  const Rounding rounding{adds ? added.expand({batch, n, m}) : at::Tensor(), beta, alpha, result};
  const std::int64_t at_once = MatricesAtOnce(n, k, m);
  for (std::int64_t i = 0; i < batch; i += at_once) {
    const Range matrices = BlockAt(i, at_once, batch);
    for (std::int64_t column = 0; column < m; column += kColumns) {
      const Range columns = BlockAt(column, kColumns, m);
      for (std::int64_t row = 0; row < n; row += kRows) {
        const Range rows = BlockAt(row, kRows, n);
        at::Tensor sum = at::from_blob(of_sum.Get(matrices.size() * rows.size() * columns.size()),
                                       {matrices.size(), rows.size(), columns.size()}, at::kFloat);
        for (std::int64_t inner = 0; inner < k; inner += kDepth) {
          const Range depth = BlockAt(inner, kDepth, k);
          Multiply(left.Widened(matrices, rows, depth, of_a),
                   right.Widened(matrices, depth, columns, of_b), inner > 0, sum);
        }
        rounding.Write(sum.const_data_ptr<float>(), matrices, rows, columns);
      }
    }
  }
  return result;
}

}  // namespace penstock
