// Tensors that the stage reads but does not own: constants, unless something may train them.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "graph/capture/capture.h"
#include "graph/capture/foreign_scope.h"
#include "tests/results.h"

namespace penstock {
namespace {

using Forward = std::function<at::Tensor(const at::Tensor& input)>;

Result<JointGraph> Capture(const Forward& forward) {
  StageSpec spec = {.inputs = {at::randn({4, 3})}, .input_gradients = {0}};
  spec.forward = [&](std::span<const at::Tensor> inputs) {
    return std::vector{forward(inputs[0])};
  };
  return CaptureStage(spec);
}

at::Tensor Trained() { return at::randn({3}).requires_grad_(true); }

TEST(Foreign, TensorsThatRequireGradientsAreRefused) {
  const at::Tensor leaf = Trained();
  const at::Tensor computed = leaf * 2;  // outside of the stage
  const at::Tensor alias = leaf.detach();
  const std::map<std::string, Forward> cases = {
      {"leaf", [&](const at::Tensor& x) { return x * leaf; }},
      {"view", [&](const at::Tensor& x) { return x * leaf.narrow(0, 0, 1); }},
      {"computed outside", [&](const at::Tensor& x) { return x * computed; }},
      {"detached in forward", [&](const at::Tensor& x) { return x * leaf.detach(); }},
      {"after its alias", [&](const at::Tensor& x) { return x * alias * leaf; }},
      {"returned", [&](const at::Tensor&) { return leaf; }},
      {"without gradients",
       [&](const at::Tensor& x) {
         const at::NoGradGuard guard;
         return x * leaf;
       }},
      {"read as a number", [&](const at::Tensor& x) { return x * leaf[0].item<float>(); }},
  };
  for (const auto& [name, forward] : cases) {
    const Result<JointGraph> joint = Capture(forward);
    EXPECT_FALSE(joint) << name;
  }
  EXPECT_TRUE(Contains(Capture(cases.at("leaf")).error().line(), "requires a gradient"));
}

TEST(Foreign, OthersAreConstants) {
  const at::Tensor leaf = Trained();
  const at::Tensor alias = leaf.detach(), frozen = at::ones({3});
  EXPECT_TRUE(Capture([&](const at::Tensor& x) { return x * alias * frozen; }));
}

TEST(Foreign, WhatNoOutputDependsOnIsIgnored) {
  const at::Tensor leaf = Trained();
  EXPECT_TRUE(Capture([&](const at::Tensor& x) {
    const at::Tensor unused = x * leaf;
    return x + at::zeros_like(unused);  // reads its shape
  }));
}

TEST(Foreign, ScopesRefuseOthersByName) {
  const at::Tensor frozen = at::ones({3});
  const ForeignScope scope([&](const at::Tensor& tensor) -> ForeignTensor {
    return {tensor.is_alias_of(frozen) ? "stage 1 trains it" : ""};
  });
  EXPECT_TRUE(Capture([&](const at::Tensor& x) { return x * at::ones({3}); }));
  const Result<JointGraph> refused = Capture([&](const at::Tensor& x) { return x * frozen; });
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().line(), "capture: stage 1 trains it");
}

}  // namespace
}  // namespace penstock
