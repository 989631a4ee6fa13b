#include "graph/kernel/processor.h"

#include <ATen/Version.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdlib>

namespace penstock {
namespace {

// Returns what ATen reports, which depends on ONEDNN_MAX_CPU_ISA.
bool MultipliesBf16() {
  const auto op =
      c10::Dispatcher::singleton().findSchema({"mkldnn::_is_mkldnn_bf16_supported", ""});
  if (!op) return true;  // a libtorch without oneDNN
  torch::jit::Stack stack;
  op->callBoxed(stack);
  return stack.at(0).toBool();
}

bool IsAmd() {
#if defined(__x86_64__)
  return __builtin_cpu_is("amd") != 0;
#else
  return false;
#endif
}

// Measured in fp32 on one core of an AMD EPYC with AVX-512, an Intel Xeon with AVX-512, and that
// Xeon limited to AVX2. The BLAS (MKL) has no AVX-512 code for AMD. If both libraries have code of
// the same width, oneDNN is 3 to 10% slower for a transposed factor and up to 8% faster for a large
// plain one.
void ChooseMatmul(const ProcessorFeatures& processor, KernelChoice& choice) {
  const bool wide = processor.capability.starts_with("AVX512");
  choice.onednn_transposed = wide && processor.is_amd ? 8'000'000 : kNeverOneDnn;
  choice.onednn_plain = !wide ? 100'000'000 : processor.is_amd ? 8'000'000 : 40'000'000;
}

std::string March(const ProcessorFeatures& processor) {
  if (processor.limited && processor.capability == "AVX2") return "x86-64-v3";
  if (processor.limited && processor.capability == "DEFAULT") return "x86-64";
  return "native";
}

}  // namespace

const ProcessorFeatures& ThisProcessor() {
  static const ProcessorFeatures processor = {at::get_cpu_capability(), MultipliesBf16(), IsAmd(),
                                              std::getenv("ATEN_CPU_CAPABILITY") != nullptr};
  return processor;
}

KernelChoice ChooseKernels(const ProcessorFeatures& processor) {
  KernelChoice choice;
  choice.bf16_in_fp32 = !processor.multiplies_bf16;
  ChooseMatmul(processor, choice);
  choice.march = March(processor);
  return choice;
}

}  // namespace penstock
