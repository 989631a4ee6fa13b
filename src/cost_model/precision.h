// The number formats in which models are trained.
#pragma once

#include <array>
#include <string_view>

namespace penstock {

// Formats of 8 and 4 bits hold the inputs of linear layers; attention, norms, embedding, head and
// router stay in bf16, and masters and sums of gradients in fp32.
enum class Precision {
  kFp32,
  kBf16,
  kFp16,
  kFp8,           // one scale per tensor (Micikevicius et al., FP8 Formats, 2022)
  kFp8Blockwise,  // one scale per 128 values (DeepSeek-V3, 2024, section 3.3)
  kMxfp8,         // one scale per 32 values (OCP Microscaling Formats, 2023)
  kNvfp4,         // one scale per 16 values of 4 bits (NVIDIA, Pretraining with NVFP4, 2025)
};

inline constexpr std::array<std::string_view, 7> kPrecisionNames = {
    "f32", "bf16", "fp16", "fp8", "fp8-blockwise", "mxfp8", "nvfp4"};

// Whether linear layers read values of 8 or 4 bits.
constexpr bool IsQuantized(Precision precision) { return precision >= Precision::kFp8; }

// Bytes of a value that a linear layer reads, with its share of the scales.
constexpr double LinearBytes(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return 4;
    case Precision::kFp8:
      return 1;
    case Precision::kFp8Blockwise:
      return 1 + 4.0 / 128;
    case Precision::kMxfp8:
      return 1 + 1.0 / 32;
    case Precision::kNvfp4:
      return 0.5 + 1.0 / 16;
    case Precision::kBf16:
    case Precision::kFp16:
      break;
  }
  return 2;
}

}  // namespace penstock
