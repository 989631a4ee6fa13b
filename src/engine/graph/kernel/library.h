// The kernels that are loaded into this process as machine code.
//
// All kernels of a call are compiled together into one shared library. The cache folder keeps it
// under a digest of its source, the compiler's version, the flags and the processor. A file that is
// incomplete (it ends in a checksum) or lacks a kernel is recompiled. A file that another user
// could have written is never loaded (compiler.h). Several processes may use one folder. The
// compiler is $PENSTOCK_CXX, else c++. The folder is $XDG_CACHE_HOME/penstock, else
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

// Loads the kernels with these texts, unless this process has loaded them already.
// Errors: kInvalidArgument for an invalid text; kUnavailable if there is no compiler, or if it
// fails or times out. After a timeout, later calls that need the compiler fail immediately.
Status LoadKernels(std::span<const std::string> texts);
// Returns null if the kernel is not loaded. The result lives as long as the process.
const LoadedKernel* FindKernel(std::string_view text);

// Runs the kernel. `inputs` and `outputs` point to the first element of each tensor, which has the
// type in the kernel. A large kernel uses the process's intra-op threads.
void RunKernelFunction(const LoadedKernel& kernel, const void* const* inputs, void* const* outputs);

}  // namespace penstock
