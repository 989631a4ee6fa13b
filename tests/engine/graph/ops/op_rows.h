// The table of Penstock's ops, and of ATen's ops whose kernels it replaces (op_test.cpp checks it).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <functional>
#include <vector>

namespace penstock::testing {

using Tensors = std::vector<at::Tensor>;
using Arguments = torch::jit::Stack;  // of a call of the op

// The group that the ranks of a collective have joined.
inline constexpr int kOpGroup = 40;

struct OpRow {
  const char* op;  // with its overload
  // Draws the arguments of some calls, on the CPU, by call and rank. Only collectives have several
  // ranks.
  std::function<std::vector<std::vector<Arguments>>()> draw;
  // Computes the results of a call by plain ATen, by rank. It supports autograd.
  std::function<std::vector<Tensors>(const std::vector<Arguments>&)> reference;
  // The largest difference, relative to the largest number. 0: all bits are equal.
  double tolerance = 0;
  // Why a check is skipped, or the arguments that have gradients.
  const char* no_gradient = nullptr;
  std::vector<std::size_t> differentiable = {};
  const char* no_shapes = nullptr;
  const char* no_cuda = nullptr;
  // Calls the op with its gradient. Null if autograd knows the op itself.
  std::function<at::Tensor(const Arguments&)> call = nullptr;
  const char* variant = "";  // distinguishes the rows of an op
};

inline void PrintTo(const OpRow& row, std::ostream* out) { *out << row.op << row.variant; }

// Whole numbers, whose sums and products are exact in fp32 in any order.
at::Tensor WholeNumbers(std::vector<std::int64_t> sizes, at::ScalarType dtype, int largest = 9);

const std::vector<OpRow>& OpRows();
std::vector<OpRow> CollectiveRows();  // a part of them

}  // namespace penstock::testing
