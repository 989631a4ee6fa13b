// What compiling a layer changes.
#include <gtest/gtest.h>

#include "cost_model/implementations/implementations.h"
#include "cost_model/implementations/transformer_engine_constants.h"
#include "cost_model/layer_work.h"
#include "cost_model/request/model_request.h"
#include "tests/results.h"

namespace penstock {
namespace {

ModelCosts TorchCosts(const char* model, const char* implementation) {
  ModelRequest request;
  request.model = model;
  request.implementation = implementation;
  const auto loaded = ValueOf(request.Load());
  return CostsOfModel(loaded, {4}).value();
}

StagePart TorchPart(const char* model, const Implementation& implementation) {
  ModelRequest request;
  request.model = model;
  const auto loaded = ValueOf(request.Load());
  return implementation.layer(loaded.shape, 0, loaded.batch);
}

double AllLaunches(const Work& work) {
  double launches = 0;
  for (const Kernels* kernels : {&work.forward, &work.backward_input, &work.backward_weight}) {
    for (const KernelCost& kernel : *kernels) launches += kernel.kernels;
  }
  return launches;
}

TEST(Torch, CompiledLayersLaunchFewerKernelsAndMoveFewerBytes) {
  for (const char* model : {"llama-3-8b", "gpt2-xl", "qwen3-8b"}) {
    const StagePart eager = TorchPart(model, TorchImplementation());
    const StagePart compiled = TorchPart(model, TorchCompileImplementation());
    EXPECT_LT(AllLaunches(compiled.work), AllLaunches(eager.work)) << model;
    EXPECT_LT(BytesOf(compiled.work.forward), BytesOf(eager.work.forward)) << model;
    EXPECT_LT(BytesOf(compiled.work.backward_input), BytesOf(eager.work.backward_input)) << model;
    EXPECT_EQ(FlopsOf(compiled.work.forward), FlopsOf(eager.work.forward)) << model;
    EXPECT_LT(KeptFromForward(compiled.kept), KeptFromForward(eager.kept)) << model;
  }
}

TEST(Torch, ComputesTheFlopsOfPenstock) {
  const StagePart torch = TorchPart("llama-3-8b", TorchImplementation());
  const StagePart own = TorchPart("llama-3-8b", Implementations().front());
  EXPECT_EQ(FlopsOf(torch.work.forward), FlopsOf(own.work.forward));
  EXPECT_EQ(FlopsOf(torch.work.backward_input), FlopsOf(own.work.backward_input));
  EXPECT_EQ(FlopsOf(torch.work.backward_weight), FlopsOf(own.work.backward_weight));
}

// SelectiveAC: wk, wo and w3 are every second matmul, and attention is kept.
TEST(Torch, PerOpRecomputationComputesEverySecondMatmulAgain) {
  const StagePart part = TorchPart("llama-3-8b", TorchCompileImplementation());
  std::vector<std::string_view> again;
  for (const KernelCost& kernel : part.work.forward) {
    if (kernel.flops > 0 && (kernel.modules & kNotKeptByOp) != 0) again.push_back(kernel.name);
  }
  EXPECT_EQ(again, (std::vector<std::string_view>{"wk", "wo", "w3"}));
  double kept = 0;
  for (const KeptTensor& tensor : part.kept) {
    const bool is_again = (tensor.modules & kNotKeptByOp) != 0;
    if (!is_again && tensor.kept != Kept::kFromInput) kept += tensor.bytes;
  }
  // The streams, queries and values, attention with its sums, and w1.
  const double per_token = 2 * (2 * 4096 + 4096 + 1024 + 4096 + 14336) + 4 * 32;
  EXPECT_EQ(kept, 4096 * per_token);
}

TEST(Torch, SelectiveIsPerOpAndOnlyThere) {
  ModelRequest request;
  request.model = "llama-3-8b";
  request.implementation = "torch";
  request.recompute = "selective";
  EXPECT_EQ(ValueOf(request.Load()).recompute.modules, kNotKeptByOp);
  request.recompute = "selective:op";
  EXPECT_EQ(ValueOf(request.Load()).recompute.modules, kNotKeptByOp);
  request.implementation = "megatron";
  EXPECT_TRUE(Contains(LineOf(request.Load()), "no module is called"));
  request.recompute = "selective";
  EXPECT_EQ(ValueOf(request.Load()).recompute.modules, kCoreAttention);
}

TEST(Torch, ComputesInFp8OnlyCompiledAndOnlyPerTensor) {
  ModelRequest request;
  request.model = "llama-3-8b";
  request.implementation = "torch-compile";
  request.precision = "fp8";
  EXPECT_TRUE(Succeeds(request.Load()));
  for (const char* precision : {"fp8-blockwise", "mxfp8", "nvfp4"}) {
    request.device = "b200";
    request.precision = precision;
    EXPECT_TRUE(Contains(LineOf(request.Load()), "computes in fp8, bf16")) << precision;
  }
  request.precision = "fp8";
  request.implementation = "torch";
  EXPECT_TRUE(Contains(LineOf(request.Load()), "computes in bf16")) << "eager";
}

TEST(Torch, AsyncTensorParallelismExposesLess) {
  ModelRequest request;
  request.model = "llama-3-70b";
  request.implementation = "torch-compile";
  request.tensor = 8;
  const double plain = CostsOfModel(ValueOf(request.Load()), {1}).value().stages[0].forward;
  request.async_tensor = true;
  EXPECT_LT(CostsOfModel(ValueOf(request.Load()), {1}).value().stages[0].forward, plain);
  request.implementation = "torch";
  EXPECT_TRUE(Contains(LineOf(request.Load()), "does not cut matmuls"));
}

TEST(Torch, ExpertsSendTheirTokensAndWaitForTheHost) {
  ModelRequest request;
  request.model = "qwen3-235b-a22b";
  request.nodes = "1x8";
  request.implementation = "torch-compile";
  request.data = 8;
  request.expert = 8;
  const auto loaded = ValueOf(request.Load());
  const StagePart part = TorchCompileImplementation().layer(loaded.shape, 0, loaded.batch);
  double routed = 0, host = 0;
  for (const KernelCost& kernel : part.work.forward) routed += kernel.routed, host += kernel.host;
  const double tokens = loaded.batch.tokens();
  // There and back, 8 experts a token.
  EXPECT_NEAR(routed / (2 * tokens * 8 * 4096 * 2 * 7 / 8), 1, 1e-12);
  EXPECT_GT(host, 0);
}

TEST(Torch, CompiledModelsTakeLessTime) {
  for (const char* model : {"llama-3-8b", "gpt2", "mixtral-8x7b", "deepseek-v3"}) {
    const StageCosts eager = TorchCosts(model, "torch").stages[3];
    const StageCosts compiled = TorchCosts(model, "torch-compile").stages[3];
    EXPECT_LT(compiled.forward, eager.forward) << model;
    EXPECT_LT(compiled.backward_input, eager.backward_input) << model;
  }
}

}  // namespace
}  // namespace penstock
