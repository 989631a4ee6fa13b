// Kernels as machine code: compiled once, kept on disk and loaded into the process.
//
// All kernels of a call are compiled together into one shared library. It stays in the cache folder
// under a name derived from its source, the compiler's version, the flags and the processor. A file
// that is incomplete (it ends in a checksum) or lacks a kernel is compiled again, and a file that
// another user could have written is never loaded (compiler.h). Several processes may use one
// folder. The compiler is $PENSTOCK_CXX, else c++; the folder is $XDG_CACHE_HOME/penstock, else
// ~/.cache/penstock. Threads: any.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "graph/kernel/kernel.h"

namespace penstock {

// See SourceOf.
using KernelFunction = void (*)(const void* const* inputs, void* const* outputs, const long* outer,
                                long begin, long end);

struct LoadedKernel {
  Kernel kernel;
  std::vector<long> outer_strides;  // see OuterStrides
  KernelFunction function = nullptr;
};

// Loads the kernels (in text form) that this process has not loaded yet. Errors: kInvalidArgument
// for an invalid text; kUnavailable if there is no compiler, or if it fails or times out (later
// calls then fail immediately).
Status LoadKernels(std::span<const std::string> texts);
// Returns null if the kernel is not loaded. The result lives as long as the process.
const LoadedKernel* FindKernel(std::string_view text);

// Runs the kernel. Outputs must have the types that it states. Large kernels use the process's
// intra-op threads. `inputs` point at the first element of each tensor.
void RunKernelFunction(const LoadedKernel& kernel, const void* const* inputs, void* const* outputs);

}  // namespace penstock
