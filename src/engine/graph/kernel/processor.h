// The features of the processor, and the kernels that Penstock selects by them.
//
// libtorch reports the features, so PyTorch's environment variables also affect Penstock. To use
// the kernels for AVX2 on any machine, set these before the program starts:
//
//   ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2
//
// The choice depends on nothing else, so it is the same in every run on a machine.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace penstock {

struct ProcessorFeatures {
  std::string capability;       // of ATen's kernels: DEFAULT, AVX2, AVX512, ...
  bool multiplies_bf16 = true;  // whether libtorch has a fast bf16 matmul for it
  bool is_amd = false;
  bool limited = false;  // whether ATEN_CPU_CAPABILITY is set
};
// Returns the features of this machine. They do not change during a process.
const ProcessorFeatures& ThisProcessor();

struct KernelChoice {
  // Whether bf16 matmuls and attention are computed in fp32 (ops/bf16_kernels.h).
  bool bf16_in_fp32 = false;
  // The smallest number of multiplications at which oneDNN is faster than the BLAS in fp32, for a
  // transposed second factor (as in F) and for a plain one (as in I). kNeverOneDnn if it never is.
  std::int64_t onednn_transposed = 0;
  std::int64_t onednn_plain = 0;
  std::string march;  // the C++ compiler's -march for fused kernels
};
inline constexpr std::int64_t kNeverOneDnn = std::numeric_limits<std::int64_t>::max();
KernelChoice ChooseKernels(const ProcessorFeatures& processor);

}  // namespace penstock
