// Fused kernels for CUDA devices. Their sources compile where NVRTC is, without a device; with one,
// they compute what ATen does.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/files.h"
#include "graph/device/device_queue.h"
#include "graph/kernel/code_cache.h"
#include "graph/kernel/cuda_library.h"
#include "graph/kernel/fused_op.h"
#include "tests/engine/graph/kernel/kernel_cache.h"

namespace penstock {
namespace {

// Before static initializers of other tests use PyTorch, which then would not see the device.
__attribute__((constructor(101))) void LoadCuda() { static_cast<void>(OpenDevice("cuda")); }

using Tensors = std::vector<at::Tensor>;

struct CudaCase {
  const char* name;
  const char* kernel;
  std::vector<std::vector<std::int64_t>> inputs;  // sizes
  std::vector<at::ScalarType> dtypes;
  Tensors (*expected)(const Tensors& inputs);
  int vector = 1;
};

const std::vector<CudaCase>& Cases() {
  constexpr at::ScalarType f32 = at::kFloat, bf16 = at::kBFloat16;
  static const std::vector<CudaCase> cases = {
      {"Pointwise",
       "loops 8 | 16; out f32[8,16]; %0 load f32 in0 0 [16,1]; %1 silu %0; %2 load f32 in1 0 "
       "[16,1]; %3 mul %1 %2; store %3 f32 out0 0 [16,1]",
       {{8, 16}, {8, 16}},
       {f32, f32},
       [](const Tensors& in) { return Tensors{at::silu(in[0]) * in[1]}; },
       4},
      {"ManyBlocks",
       "loops 40 | 1001; out bf16[40,1001]; %0 load bf16 in0 0 [1001,1]; %1 exp %0; %2 round %1; "
       "store %2 bf16 out0 0 [1001,1]",
       {{40, 1001}},
       {bf16},
       [](const Tensors& in) { return Tensors{at::exp(in[0])}; }},
      {"Broadcast",
       "loops 6 5 | 8; out bf16[6,5,8]; out f32[6,5,8]; %0 load bf16 in0 0 [40,8,1]; %1 load f32 "
       "in1 0 [8,0,1]; %2 mul %0 %1; %3 round %2; store %3 bf16 out0 0 [40,8,1]; %5 neg %2; store "
       "%5 f32 out1 0 [40,8,1]",
       {{6, 5, 8}, {6, 8}},
       {bf16, f32},
       [](const Tensors& in) {
         const at::Tensor product = in[0].to(at::kFloat) * in[1].unsqueeze(1);
         return Tensors{product.to(at::kBFloat16), -product};
       },
       4},
      {"Transposed",
       "loops 4 6 | 8; out f32[6,4,8]; %0 load f32 in0 0 [48,8,1]; %1 neg %0; store %1 f32 out0 0 "
       "[8,32,1]",
       {{4, 6, 8}},
       {f32},
       [](const Tensors& in) { return Tensors{(-in[0]).transpose(0, 1).contiguous()}; },
       4},
      {"RmsNorm",
       "loops 9 | 72; out bf16[9,72]; out f32[9,1]; %0 load bf16 in0 0 [72,1]; %1 square %0; %2 "
       "sum %1; %3 number 72; %4 div %2 %3; %5 number 1e-05; %6 add %4 %5; %7 rsqrt %6; store %7 "
       "f32 out1 0 [1,0]; %9 mul %0 %7; %10 load f32 in1 0 [0,1]; %11 mul %9 %10; %12 round %11; "
       "store %12 bf16 out0 0 [72,1]",
       {{9, 72}, {72}},
       {bf16, f32},
       [](const Tensors& in) {
         const at::Tensor x = in[0].to(at::kFloat);
         const at::Tensor scale = at::rsqrt(x.square().mean({1}, true) + 1e-5);
         return Tensors{(x * scale * in[1]).to(at::kBFloat16), scale};
       },
       4},
      {"SumOfSums",
       "loops 5 | 3 2999; out f32[5,3,2999]; %0 load f32 in0 0 [8997,2999,1]; %1 exp %0; %2 sum "
       "%1; %3 div %1 %2; %4 mul %3 %0; %5 sum %4; %6 sub %0 %5; %7 mul %3 %6; store %7 f32 out0 0 "
       "[8997,2999,1]",
       {{5, 3, 2999}},
       {f32},
       [](const Tensors& in) {
         const at::Tensor share = at::exp(in[0]) / at::exp(in[0]).sum({1, 2}, true);
         return Tensors{share * (in[0] - (share * in[0]).sum({1, 2}, true))};
       }},
  };
  return cases;
}

class CudaKernels : public ::testing::TestWithParam<CudaCase> {};

TEST_P(CudaKernels, Compile) {
  const testing::KernelCache empty;
  const Result<Kernel> kernel = KernelOf(GetParam().kernel);
  ASSERT_TRUE(kernel) << kernel.error().line();
  EXPECT_EQ(VectorOf(*kernel), GetParam().vector);
  for (const int vector : {1, GetParam().vector}) {
    const std::string source = std::string(CudaPrelude()) + CudaSourceOf(*kernel, "kernel", vector);
    const auto code = CompileCuda(source, "sm_90");
    if (!code && code.error().line().find("refuses") == std::string::npos) {
      GTEST_SKIP() << code.error().line();
    }
    ASSERT_TRUE(code) << code.error().line() << "\n" << source;
    EXPECT_GT(code->size(), 100);
  }
}

// A later run takes the code from the cache folder unless it is damaged.
TEST(CudaKernelCache, KeepsCode) {
  const testing::KernelCache cache;
  const Result<Kernel> kernel = KernelOf(Cases().front().kernel);
  const std::string source = std::string(CudaPrelude()) + CudaSourceOf(*kernel, "kernel", 1);
  const auto code = CompileCuda(source, "sm_90");
  if (!code) GTEST_SKIP() << code.error().line();
  ASSERT_EQ(cache.Files(), 1);
  const std::filesystem::path file = std::filesystem::directory_iterator(cache.folder())->path();
  EXPECT_TRUE(CompileCuda(source, "sm_80"));
  EXPECT_EQ(cache.Files(), 2);
  ASSERT_TRUE(WriteFileAtomically(file.string(), CacheFileOf("other code")));
  EXPECT_EQ(CompileCuda(source, "sm_90"), "other code");
  ASSERT_TRUE(WriteFileAtomically(file.string(), "other code"));
  EXPECT_EQ(CompileCuda(source, "sm_90"), *code);
  EXPECT_EQ(ReadFile(file.string()), CacheFileOf(*code));
}

TEST_P(CudaKernels, ComputeWhatAtenDoes) {
  const auto device = OpenDevice("cuda");
  if (!device) GTEST_SKIP() << device.error().line();
  const auto fused = FusedOp().typed<std::vector<at::Tensor>(at::TensorList, c10::string_view)>();
  Tensors inputs, moved, shifted;
  for (std::size_t i = 0; i < GetParam().inputs.size(); ++i) {
    inputs.push_back(at::randn(GetParam().inputs[i]).to(GetParam().dtypes[i]));
    moved.push_back(inputs.back().to(*device));
    // Not aligned to vectors.
    const at::Tensor longer = at::cat({moved.back().flatten(), moved.back().flatten()});
    shifted.push_back(longer.roll(1).narrow(0, 1, inputs.back().numel()).view(inputs[i].sizes()));
  }
  const Tensors expected = GetParam().expected(inputs);
  for (const auto& values : {moved, shifted}) {
    const Tensors found = fused.call(values, GetParam().kernel);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double tolerance = found[i].scalar_type() == at::kFloat ? 1e-5 : 8e-3;
      EXPECT_TRUE(at::allclose(found[i].cpu(), expected[i], tolerance, 1e-6)) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, CudaKernels, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock
