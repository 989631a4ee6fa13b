// What the processor can do, and which kernels are chosen for it: one table, read once per process.
//
// The answers are libtorch's own, so its switches move Penstock's choices with its own ones. To run
// on any machine what a processor with AVX2 alone runs, set before the program starts
//
//   ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2
//
// A choice depends on nothing else, so it is the same in every run on one machine.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace penstock {

struct ProcessorFeatures {
  std::string capability;       // of ATen's kernels: DEFAULT, AVX2, AVX512, ...
  bool multiplies_bf16 = true;  // libtorch has a fast bf16 matmul for it, not a scalar loop
  bool is_amd = false;
  bool limited = false;  // ATEN_CPU_CAPABILITY asks for less than the processor has
};
// This machine's.
const ProcessorFeatures& ThisProcessor();

struct KernelChoice {
  // bf16 matmuls and attention are computed in fp32 (ops/bf16_kernels.h).
  bool bf16_in_fp32 = false;
  // Multiplications from which oneDNN multiplies fp32 matrices faster than the BLAS: by a
  // transposed second factor (F's) and by a plain one (I's). kNeverOneDnn where it does not.
  std::int64_t onednn_transposed = 0;
  std::int64_t onednn_plain = 0;
  // What the C++ compiler may use in fused kernels (-march).
  std::string march;
};
inline constexpr std::int64_t kNeverOneDnn = std::numeric_limits<std::int64_t>::max();
KernelChoice ChooseKernels(const ProcessorFeatures& processor);

}  // namespace penstock
