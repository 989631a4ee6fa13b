// A fused kernel as plain data: loops over one index space, loads, arithmetic, row sums, stores.
//
// Steps are in single assignment: the arguments of a step are earlier steps. Arithmetic is in fp32,
// whatever the dtypes of inputs and outputs. A value that no inner loop changes belongs to a row:
// it is computed once per row, and sums run over a row. KernelOf parses the text form.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "graph/ir/ir.h"

namespace penstock {

// The position of a loop's point in a tensor's memory: offset plus the sum of index times stride,
// in elements.
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
  kAccumulate,  // adds to memory that exists before the kernel runs: its last output
  kPointwise
};

struct KernelStep {
  StepKind kind = StepKind::kPointwise;
  std::string op = {};              // kPointwise: a name in kPointwiseOps
  std::vector<int> arguments = {};  // earlier steps
  int tensor = -1;                  // index of the input; kStore, kAccumulate: of the output
  c10::ScalarType dtype = c10::ScalarType::Float;  // of that tensor
  KernelAccess access = {};                        // of that tensor
  double number = 0;                               // kNumber
};

struct Kernel {
  std::vector<std::int64_t> loops;  // sizes, outermost first
  int inner = 1;                    // number of innermost loops that form a row
  std::vector<TensorType> outputs;  // the outputs that it allocates
  std::vector<KernelStep> steps;
};

// "loops 8 | 16; out f32[8,16]; %0 load f32 in0 0 [16,1]; %1 neg %0; store %1 f32 out0 0 [16,1]"
std::string TextOf(const Kernel& kernel);
// Errors: kInvalidArgument, naming what is wrong.
Result<Kernel> KernelOf(std::string_view text);

// Returns the C++ of `extern "C" void NAME(const void* const* inputs, void* const* outputs, const
// long* outer, long begin, long end)`, which runs the outermost loop from begin to end. It must
// follow KernelPrelude(). `outer` is OuterStrides(): kernels that differ only in those share one
// source. This holds for the slices of a sequence, whose keys and values are further apart from
// slice to slice.
std::string SourceOf(const Kernel& kernel, std::string_view name);
// Returns, by step, its stride along the outermost loop if the source reads it at run time, else 0.
std::vector<long> OuterStrides(const Kernel& kernel);
std::string_view KernelPrelude();
// Returns, by step, whether it belongs to a row (see above).
std::vector<bool> RowSteps(const Kernel& kernel);
// Returns whether the outermost loop can run in parts: no sum and no accumulation runs over it.
bool CanSplit(const Kernel& kernel);

// Returns the expression of a pointwise op, with %0 and %1 for its arguments, or an empty text.
std::string_view ExpressionOf(std::string_view op);

}  // namespace penstock
