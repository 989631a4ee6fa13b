// The kernels that are selected for a processor, and the effect of PyTorch's environment variables.
#include "graph/kernel/processor.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

namespace penstock::testing {
namespace {

TEST(Processor, ComputesBf16InFp32WithoutBf16Instructions) {
  EXPECT_FALSE(ChooseKernels({"AVX512", true, false, false}).bf16_in_fp32);
  EXPECT_TRUE(ChooseKernels({"AVX2", false, false, false}).bf16_in_fp32);
  EXPECT_FALSE(ChooseKernels({"AVX2", true, false, false}).bf16_in_fp32);  // AVX-NE-CONVERT
}

TEST(Processor, UsesOneDnnIfTheBlasIsSlower) {
  const KernelChoice amd = ChooseKernels({"AVX512", true, true, false});
  const KernelChoice intel = ChooseKernels({"AVX512", true, false, false});
  const KernelChoice avx2 = ChooseKernels({"AVX2", false, true, false});
  EXPECT_LT(amd.onednn_transposed, intel.onednn_transposed);
  EXPECT_EQ(intel.onednn_transposed, kNeverOneDnn);
  EXPECT_EQ(avx2.onednn_transposed, kNeverOneDnn);
  EXPECT_LT(amd.onednn_plain, intel.onednn_plain);
  EXPECT_LT(intel.onednn_plain, avx2.onednn_plain);
}

TEST(Processor, GeneratesCodeForTheLimit) {
  EXPECT_EQ(ChooseKernels({"AVX2", false, false, false}).march, "native");
  EXPECT_EQ(ChooseKernels({"AVX2", false, false, true}).march, "x86-64-v3");
  EXPECT_EQ(ChooseKernels({"AVX512", true, false, true}).march, "native");
}

// tests/engine/graph/CMakeLists.txt also runs this with PyTorch's environment variables for AVX2.
TEST(Processor, FollowsEnvironmentVariablesOfPyTorch) {
  const char* const capability = std::getenv("ATEN_CPU_CAPABILITY");
  if (capability == nullptr || std::string_view(capability) != "avx2") {
    GTEST_SKIP() << "set ATEN_CPU_CAPABILITY=avx2 and ONEDNN_MAX_CPU_ISA=AVX2";
  }
  const KernelChoice choice = ChooseKernels(ThisProcessor());
  EXPECT_TRUE(choice.bf16_in_fp32);
  EXPECT_EQ(choice.march, "x86-64-v3");
}

}  // namespace
}  // namespace penstock::testing
