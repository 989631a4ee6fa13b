// What kernels, collectives and messages of Megatron-LM's local layers cost.
#include <gtest/gtest.h>

#include <numeric>

#include "cost_model/request/model_request.h"
#include "tests/results.h"

namespace penstock {
namespace {

ModelRequest SmallGpt() {
  ModelRequest request;
  request.model = "gpt";
  request.layers = 8;
  request.dim = 1024;
  request.heads = 16;
  request.vocabulary = 51200;
  request.sequence = 1024;
  request.device = "a100";
  request.precision = "fp16";
  request.implementation = "megatron";
  request.sequence_parallel = false;
  return request;
}

ModelCosts CostsOf(const ModelRequest& request, int stages = 4) {
  const auto model = ValueOf(request.Load());
  return CostsOfModel(model, {stages}).value();
}

StageCosts SecondStage(const ModelRequest& request) { return CostsOf(request).stages[1]; }

double Backward(const StageCosts& costs) { return costs.backward_input + costs.backward_weight; }

StagePart LayerOf(const ModelRequest& request) {
  const auto model = ValueOf(request.Load());
  return model.batch.profile.get().layer(model.shape, 0, model.batch);
}

double Launches(const Kernels& kernels) {
  return std::accumulate(kernels.begin(), kernels.end(), 0.0,
                         [](double sum, const KernelCost& each) { return sum + each.kernels; });
}

double Sent(const Kernels& kernels) {
  return std::accumulate(kernels.begin(), kernels.end(), 0.0,
                         [](double sum, const KernelCost& each) { return sum + each.sent; });
}

TEST(Megatron, SmallLayersTakeAsLongAsTheirLaunches) {
  ModelRequest request = SmallGpt();
  const Work work = LayerOf(request).work;
  request.host_launch = "100us";
  const StageCosts costs = SecondStage(request);
  EXPECT_NEAR(costs.forward, 2 * 100e-6 * Launches(work.forward), 1e-12);
  request.micro_batch_size = 2;
  EXPECT_DOUBLE_EQ(SecondStage(request).forward, costs.forward);
  request.micro_batch_size = 64;
  EXPECT_GT(SecondStage(request).forward, 4 * costs.forward);
}

TEST(Megatron, DropoutLaunchesOneKernelForScoresAndOneForEachBranch) {
  ModelRequest request = SmallGpt();
  const Work without = LayerOf(request).work;
  request.dropout = true;
  const Work with = LayerOf(request).work;
  EXPECT_EQ(Launches(with.forward), Launches(without.forward) + 3);
  EXPECT_EQ(Launches(with.backward_input), Launches(without.backward_input) + 3);
  EXPECT_EQ(Launches(with.forward), 18);
  EXPECT_EQ(Launches(with.backward_input) + Launches(with.backward_weight), 30);
}

TEST(Megatron, RecomputationAddsTheForwardToTheBackward) {
  ModelRequest request = SmallGpt();
  const StageCosts kept = SecondStage(request);
  request.recompute = "full";
  const StageCosts again = SecondStage(request);
  EXPECT_DOUBLE_EQ(again.forward, kept.forward);
  EXPECT_NEAR(Backward(again), Backward(kept) + kept.forward, 1e-12);
}

TEST(Megatron, MoreTensorRanksSendMoreEach) {
  ModelRequest request = SmallGpt();
  double last = 0;
  EXPECT_EQ(Sent(LayerOf(request).work.forward), 0);
  for (const int ranks : {2, 4, 8}) {
    request.tensor = ranks;
    const Work work = LayerOf(request).work;
    EXPECT_GT(Sent(work.forward), last);
    EXPECT_EQ(Sent(work.backward_input), Sent(work.forward));
    EXPECT_EQ(Sent(work.backward_weight), 0);
    last = Sent(work.forward);
  }
}

TEST(Megatron, AllReducesOfTheBackwardAreHiddenSince2022) {
  ModelRequest request = SmallGpt();
  request.tensor = 2;
  request.micro_batch_size = 16;
  const StageCosts hidden = SecondStage(request);
  request.release = "2021-06";
  const StageCosts exposed = SecondStage(request);
  EXPECT_DOUBLE_EQ(exposed.forward, hidden.forward);
  EXPECT_GT(Backward(exposed), Backward(hidden));
}

TEST(Megatron, FlashAttentionKeepsScoresOutOfMemory) {
  ModelRequest request = SmallGpt();
  const auto bytes = [&](int sequence) {
    request.sequence = sequence;
    return BytesOf(LayerOf(request).work.forward);
  };
  const double unfused = bytes(4096) - 2 * bytes(2048);
  request.attention = "flash";
  const double flash = bytes(4096) - 2 * bytes(2048);
  EXPECT_GT(unfused, 2.0 * 4096 * 4096 * 16);
  EXPECT_LT(flash, 0);  // weights are read once
}

TEST(Megatron, GradientsAreSummedAsTheyAreKept) {
  ModelRequest request = SmallGpt();
  request.data = 2;
  const double fp16 = SecondStage(request).reduce;
  request.precision = "bf16";
  const double bf16 = SecondStage(request).reduce;
  EXPECT_GT(bf16, 1.5 * fp16);
  EXPECT_LT(bf16, 2 * fp16);  // latencies are equal
}

TEST(Megatron, EachTensorRankSendsItsPartOfAMessage) {
  ModelRequest request = SmallGpt();
  request.nodes = "4x8";
  request.tensor = 8;
  const ModelCosts parts = CostsOf(request);
  EXPECT_EQ(parts.message_bytes, 1024.0 * 1024 * 2 / 8);
  EXPECT_EQ(parts.transfers, Transfers::kBlocking);
  request.sequence_parallel = true;  // no rank has more than its part
  EXPECT_EQ(CostsOf(request).message_bytes, parts.message_bytes);
  EXPECT_LT(CostsOf(request).comm, parts.comm);
}

TEST(Megatron, TheFirstAndTheLastStageAddGradientsOfATiedEmbedding) {
  ModelRequest request = SmallGpt();
  const ModelCosts tied = CostsOf(request);
  request.tied = false;
  const ModelCosts untied = CostsOf(request);
  EXPECT_GT(tied.stages.front().step, untied.stages.front().step);
  EXPECT_GT(tied.stages.back().step, untied.stages.back().step);
  EXPECT_EQ(tied.stages[1].step, untied.stages[1].step);
}

TEST(Megatron, TensorRanksOnSeveralNodesSendOnlyShardsOverTheNetwork) {
  ModelRequest request = SmallGpt();
  request.tensor = 16;
  request.micro_batch_size = 64;
  request.nodes = "1x64";
  const double in_node = SecondStage(request).forward;
  request.nodes = "8x8";
  const double across = SecondStage(request).forward;
  request.nodes = "64x1";
  const double by_network = SecondStage(request).forward;
  EXPECT_GT(across, in_node);
  EXPECT_LT(across - in_node, (by_network - in_node) / 4);
}

TEST(Megatron, PricesDecodersWithExpertsAndLatentAttention) {
  for (const char* name : {"llama-3-8b", "mixtral-8x7b", "deepseek-v3"}) {
    ModelRequest request;
    request.model = name;
    request.implementation = "megatron";
    const ModelCosts costs = CostsOf(request);
    EXPECT_GT(costs.stages[1].forward, 0) << name;
    EXPECT_GT(Backward(costs.stages[1]), costs.stages[1].forward) << name;
  }
}

}  // namespace
}  // namespace penstock
