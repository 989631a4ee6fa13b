// What compiling a layer changes.
#include <gtest/gtest.h>

#include "cost_model/implementations/implementations.h"
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
    EXPECT_EQ(KeptFromForward(compiled.kept), KeptFromForward(eager.kept)) << model;
  }
}

TEST(Torch, ComputesTheFlopsOfPenstock) {
  const StagePart torch = TorchPart("llama-3-8b", TorchImplementation());
  const StagePart own = TorchPart("llama-3-8b", Implementations().front());
  EXPECT_EQ(FlopsOf(torch.work.forward), FlopsOf(own.work.forward));
  EXPECT_EQ(FlopsOf(torch.work.backward_input), FlopsOf(own.work.backward_input));
  EXPECT_EQ(FlopsOf(torch.work.backward_weight), FlopsOf(own.work.backward_weight));
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
