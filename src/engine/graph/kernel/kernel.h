// A fused kernel as plain data: loops over one index space, loads, arithmetic, row sums and stores.
//
// Steps are in single assignment form: the arguments of a step are earlier steps. Arithmetic is in
// fp32 for all dtypes of inputs and outputs. Sums run over a row. A value that is constant along
// the inner loops belongs to a row and is computed once per row.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "graph/ir/ir.h"

namespace penstock {

// A position in a tensor's memory, in elements: the offset plus, for every loop, its index times
// its stride.
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
  kAccumulate,  // adds to the last output, which exists before the kernel runs
  kPointwise
};

struct KernelStep {
  StepKind kind = StepKind::kPointwise;
  std::string op = {};              // kPointwise: a name in kPointwiseOps
  std::vector<int> arguments = {};  // earlier steps
  int tensor = -1;                  // kLoad: index of the input; kStore, kAccumulate: of the output
  c10::ScalarType dtype = c10::ScalarType::Float;  // of that tensor
  KernelAccess access = {};                        // of that tensor
  double number = 0;                               // kNumber
};

struct Kernel {
  std::vector<std::int64_t> loops;  // sizes, outermost first
  int inner = 1;                    // number of innermost loops that form a row
  std::vector<TensorType> outputs;  // without the accumulator
  std::vector<KernelStep> steps;
};

// Returns a text such as
// "loops 8 | 16; out f32[8,16]; %0 load f32 in0 0 [16,1]; %1 neg %0; store %1 f32 out0 0 [16,1]"
std::string TextOf(const Kernel& kernel);
// Parses the text of a kernel. Errors: kInvalidArgument, with what is wrong and where.
Result<Kernel> KernelOf(std::string_view text);

// Returns the C++ source of `extern "C" void NAME(const void* const* inputs, void* const* outputs,
// const long* outer, long begin, long end)`, which runs the outermost loop from begin to end. The
// source must follow KernelPrelude(). `outer` is OuterStrides(). Kernels that differ only in these
// have the same source, such as the kernels of a microbatch's sequence slices, whose keys and
// values have different strides.
std::string SourceOf(const Kernel& kernel, std::string_view name);
// Returns, by step, its stride along the outermost loop if the source takes it from `outer`, else
// 0.
std::vector<long> OuterStrides(const Kernel& kernel);
std::string_view KernelPrelude();
// Returns, by step, whether its value belongs to a row.
std::vector<bool> RowSteps(const Kernel& kernel);
// Returns whether the outermost loop can run in parts: no sum and no accumulation runs over it.
bool CanSplit(const Kernel& kernel);

// Returns the C++ expression of a pointwise op, with %0 and %1 for its arguments. Returns an empty
// text if there is no such op.
std::string_view ExpressionOf(std::string_view op);

}  // namespace penstock
