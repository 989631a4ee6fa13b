// Kernels as machine code: compiled once, kept on disk, loaded into the process.
//
// All kernels of a call go through one run of the compiler into one shared library, which stays in
// the cache folder under a name made of its source, the compiler's version, the flags and the
// processor. A file that is not whole (it ends in a checksum) or lacks a kernel is compiled again,
// and one that another user could have written is never loaded (compiler.h). Several processes may
// work on one folder. The compiler is $PENSTOCK_CXX, else c++; the folder $XDG_CACHE_HOME/penstock,
// else ~/.cache/penstock. Threads: any.
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

// Loads those of the kernels (in text form) that this process lacks. Errors: kInvalidArgument for
// a text that is none; kUnavailable where there is no compiler, it fails or does not end in time
// (later calls then fail at once).
Status LoadKernels(std::span<const std::string> texts);
// Null where it is not loaded. Lives as long as the process.
const LoadedKernel* FindKernel(std::string_view text);

// Runs the kernel: outputs are made of the types that it says. Large ones use the process's
// intra-op threads. `inputs` point at each tensor's first element.
void RunKernelFunction(const LoadedKernel& kernel, const void* const* inputs, void* const* outputs);

}  // namespace penstock
