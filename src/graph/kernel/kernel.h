// A fused kernel as plain data: loops over one index space, loads, arithmetic, row sums, stores.
//
// Steps are in single assignment: a step's arguments are earlier steps. Arithmetic is in fp32,
// whatever the dtype of what is loaded and stored. A value that no inner loop changes belongs to a
// row: it is computed once a row, and sums run over a row. The text form reads back (KernelOf).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "graph/ir/ir.h"

namespace penstock {

// Where a loop's point lies in a tensor's memory: offset + sum of index times stride, in elements.
struct KernelAccess {
  std::int64_t offset = 0;
  std::vector<std::int64_t> strides;  // by loop

  friend bool operator==(const KernelAccess&, const KernelAccess&) = default;
};

enum class StepKind : std::uint8_t {
  kLoad,
  kNumber,
  kSum,  // over a row
  kStore,
  kGather,  // adds to what is there: to memory that is the kernel's last output, not made by it
  kPointwise
};

struct KernelStep {
  StepKind kind = StepKind::kPointwise;
  std::string op = {};                             // kPointwise: a name of kPointwiseOps
  std::vector<int> arguments = {};                 // earlier steps
  int tensor = -1;                                 // which input; kStore, kGather: output
  c10::ScalarType dtype = c10::ScalarType::Float;  // of that tensor
  KernelAccess access = {};                        // of that tensor
  double number = 0;                               // kNumber
};

struct Kernel {
  std::vector<std::int64_t> loops;  // sizes, outermost first
  int inner = 1;                    // how many of them, from the last, make a row
  std::vector<TensorType> outputs;  // those that it makes
  std::vector<KernelStep> steps;
};

// "loops 8 | 16; out f32[8,16]; %0 load f32 in0 0 [16,1]; %1 neg %0; store %1 f32 out0 0 [16,1]"
std::string TextOf(const Kernel& kernel);
// Errors: kInvalidArgument, naming what does not fit.
Result<Kernel> KernelOf(std::string_view text);

// C++ of `extern "C" void NAME(const void* const* inputs, void* const* outputs, const long* outer,
// long begin, long end)`, which runs the outermost loop from begin to end; to be put after
// KernelPrelude(). `outer` is OuterStrides(): kernels that differ in those alone have one source,
// as those of a sequence's slices do, whose keys and values lie further apart from slice to slice.
std::string SourceOf(const Kernel& kernel, std::string_view name);
// By step: its stride along the outermost loop where the source reads it at run time, else 0.
std::vector<long> OuterStrides(const Kernel& kernel);
std::string_view KernelPrelude();
// By step: whether it belongs to a row (see above).
std::vector<bool> RowSteps(const Kernel& kernel);
// Whether the outermost loop may be run in parts: no sum and no gathering runs over it.
bool CanSplit(const Kernel& kernel);

// The expression of a pointwise op with %0, %1 for its arguments; empty where there is none.
std::string_view ExpressionOf(std::string_view op);

}  // namespace penstock
