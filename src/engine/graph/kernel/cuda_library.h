// The kernels that are loaded onto CUDA devices, compiled by NVRTC.
//
// Neither CUDA's headers nor its libraries are needed to build the program: the functions are found
// in the libraries that PyTorch loads. Threads: any.
#pragma once

#include <c10/core/Device.h>

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "graph/kernel/cuda_source.h"

namespace penstock {

struct CudaFunction {
  void* address = nullptr;  // of the driver; null if there is none
  CudaGrid grid;
};

struct CudaKernel {
  Kernel kernel;
  CudaFunction scalar;
  CudaFunction vector;  // for tensors that are aligned to vectors
};

// Loads the kernels with these texts onto the device, unless loaded already.
// Errors: kInvalidArgument for an invalid text; kUnavailable if NVRTC is missing or refuses the
// source.
Status LoadCudaKernels(std::span<const std::string> texts, c10::Device device);
// Returns null if the kernel is not loaded. The result lives as long as the process.
const CudaKernel* FindCudaKernel(std::string_view text, c10::Device device);

// Starts the kernel on the thread's stream of the device. Throws std::runtime_error if CUDA fails.
void RunCudaKernel(const CudaKernel& kernel, c10::Device device,
                   std::span<const void* const> inputs, std::span<void* const> outputs);

// Returns the machine code of a source for an architecture such as "sm_90", from the cache folder
// (code_cache.h) if this version of NVRTC has compiled it before. Needs no device.
Result<std::string> CompileCuda(const std::string& source, const std::string& architecture);

}  // namespace penstock
