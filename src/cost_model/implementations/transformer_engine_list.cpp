#include "cost_model/implementations/transformer_engine_list.h"

#include "cost_model/implementations/transformer_engine_constants.h"

namespace penstock::transformer_engine {
namespace {

constexpr double kBf16Bytes = 2;

// Kernels that were written for Hopper and later came with software of 2025.
bool UsesFlash2(const Profile& profile) {
  constexpr std::string_view kFirstNewer = "2025";
  const bool is_old = !profile.release.empty() && profile.release < kFirstNewer;
  return is_old && profile.generation != Generation::kAmpere;
}

}  // namespace

KernelCost KernelList::Product(const Matmul& matmul, double depth) const {
  KernelCost kernel{.name = matmul.name, .flops = 2 * matmul.rows * matmul.in * matmul.out};
  kernel.precision = precision_;
  kernel.depth = depth;
  if (matmul.is_grouped) {
    const double width = batch_.profile.fused_experts ? kGroupedWidthFused : kGroupedWidth;
    kernel.efficiency = matmul.width / (matmul.width + width);
  }
  return kernel;
}

// The traffic of quantizing one element of an input or a gradient.
double KernelList::QuantizedBytes(const Matmul& matmul) const {
  if (!IsQuantized(precision_)) return 0;
  double factor = kQuantize;
  if (batch_.precision == Precision::kNvfp4 && precision_ == Precision::kNvfp4) {
    factor *= kQuantizeNvfp4;
  }
  if (matmul.is_grouped) {
    // A single expert of a rank is a linear layer like others.
    const double rows = batch_.profile.fused_experts ? kQuantizeRowsFused : kQuantizeRows;
    factor *= rows + (1 - rows) / matmul.matrices;
  }
  return factor * (kBf16Bytes + 2 * LinearBytes(precision_));
}

void KernelList::Linear(const Matmul& matmul) {
  const double weights = kWeightTraffic * matmul.matrices * matmul.in * matmul.out;
  const double read = weights * LinearBytes(precision_);
  const double quantized = QuantizedBytes(matmul);
  AddForward(Product(matmul, matmul.in));
  AddForward(
      {.name = "weights, and quantization", .bytes = read + matmul.rows * matmul.in * quantized});
  AddInput(Product(matmul, matmul.out));
  AddInput(
      {.name = "weights, and quantization", .bytes = read + matmul.rows * matmul.out * quantized});
  AddWeight(Product(matmul, matmul.rows / matmul.matrices));
  AddWeight({.name = "sums of gradients", .bytes = weights * 2 * kBf16Bytes});
}

void KernelList::Adapter(const Matmul& matmul) {
  const auto traffic = [&](double inputs, double outputs) {
    const double elements = matmul.rows * (inputs * matmul.in + outputs * matmul.out);
    return KernelCost{.name = "adapter", .bytes = kBf16Bytes * elements};
  };
  AddForward(traffic(kAdapterInputs, kAdapterOutputs));
  AddInput(traffic(kAdapterInputGradients, kAdapterOutputGradients));
}

void KernelList::Passes(std::string_view name, double elements, double passes) {
  const double bytes = elements * kBf16Bytes * passes / 3;
  AddForward({.name = name, .bytes = bytes});
  AddInput({.name = name, .bytes = 2 * bytes});
}

void KernelList::Attention(double forward, double input, double masked, double efficiency) {
  const int outside = std::exchange(modules_, modules_ | kCoreAttention);
  const bool is_old = UsesFlash2(batch_.profile);
  AddForward(
      {.name = "attention",
       .flops = forward,
       .skipped = masked * forward,
       .efficiency = efficiency * (is_old ? kFlash2Forward : kAttentionForward) / kMatmulBf16});
  AddInput(
      {.name = "attention",
       .flops = input,
       .skipped = masked * input,
       .efficiency = efficiency * (is_old ? kFlash2Backward : kAttentionBackward) / kMatmulBf16});
  modules_ = outside;
}

void KernelList::Scan(std::string_view name, double flops) {
  const double efficiency = kScan / kMatmulBf16;
  AddForward({.name = name, .flops = flops, .efficiency = efficiency});
  AddInput({.name = name, .flops = 2.5 * flops, .efficiency = efficiency});
}

void KernelList::Exchange(double bytes, int forward, int input, int weight, double exposed) {
  if (bytes == 0) return;
  const auto collectives = [&](int count) {
    return KernelCost{.name = "exchange of hidden states",
                      .sent = count * bytes,
                      .collectives = count,
                      .exposed = exposed};
  };
  AddForward(collectives(forward));
  AddInput(collectives(input));
  AddWeight(collectives(weight));
}

void KernelList::Host(double seconds) {
  AddForward({.name = "launches", .host = seconds * (1 - kHostWeight) / 2});
  AddInput({.name = "launches", .host = seconds * (1 - kHostWeight) / 2});
  AddWeight({.name = "launches", .host = seconds * kHostWeight});
}

}  // namespace penstock::transformer_engine
