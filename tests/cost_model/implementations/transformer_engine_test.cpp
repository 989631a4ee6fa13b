// How times by TransformerEngine depend on formats, fusion, dispatchers, graphs and devices.
#include <gtest/gtest.h>

#include "cost_model/published_models.h"
#include "cost_model/request/model_request.h"
#include "tests/cost_model/work_of_stage.h"

namespace penstock {
namespace {

ModelRequest TransformerEngineRun(const char* model, const char* device) {
  ModelRequest request;
  request.model = model;
  request.device = device;
  request.implementation = "transformer-engine";
  return request;
}

StageCosts OnlyStage(const ModelRequest& request) {
  const auto model = request.Load();
  EXPECT_TRUE(model) << model.error().line();
  return CostsOfModel(*model, {1}).value().stages[0];
}

double SecondsOf(const ModelRequest& request) {
  const StageCosts costs = OnlyStage(request);
  return costs.forward + costs.backward_input + costs.backward_weight;
}

TEST(TransformerEngine, ComputesTheProductsThatOthersCompute) {
  for (const char* name : {"llama-3-8b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-20b"}) {
    const ModelShape shape = FindPublishedModel(name).value();
    Microbatch batch;
    const double penstock = FlopsOf(WorkOfStage(shape, {4, 6}, batch).forward);
    batch.profile.implementation = FindImplementation("transformer-engine").value();
    const double ours = FlopsOf(WorkOfStage(shape, {4, 6}, batch).forward);
    EXPECT_NEAR(ours / penstock, 1, 0.05) << name;  // values of latent attention are not padded
  }
}

TEST(TransformerEngine, FewerBitsAreFaster) {
  ModelRequest request = TransformerEngineRun("llama-3-70b", "gb200");
  request.time_factor = 1;
  double before = 1e9;
  for (const char* precision : {"bf16", "mxfp8", "nvfp4"}) {
    request.precision = precision;
    const double seconds = SecondsOf(request);
    EXPECT_LT(seconds, before) << precision;
    before = seconds;
  }
  request.precision = "fp8";
  const double whole = SecondsOf(request);
  request.precision = "fp8-blockwise";
  EXPECT_GT(SecondsOf(request), whole);
}

TEST(TransformerEngine, LastLayersMayStayInBf16) {
  ModelRequest request = TransformerEngineRun("llama-3-8b", "gb200");
  request.time_factor = 1;
  const double bf16 = SecondsOf(request);
  request.precision = "nvfp4";
  const double nvfp4 = SecondsOf(request);
  request.layers_at_end_in_bf16 = 16;
  EXPECT_NEAR(SecondsOf(request), (bf16 + nvfp4) / 2, 0.02 * bf16);
  request.layers_at_end_in_bf16 = 32;
  EXPECT_NEAR(SecondsOf(request), bf16, 1e-9);
}

TEST(TransformerEngine, ShortMatmulsReachLess) {
  const auto rate = [](const char* model) {
    const ModelRequest request = TransformerEngineRun(model, "h100");
    const ModelOnCluster loaded = request.Load().value();
    const Work work = WorkOfStage(loaded.shape, {1, 2}, loaded.batch);
    ModelOnCluster of_layer = loaded;
    of_layer.shape.layers = 2;
    return FlopsOf(work.forward) / CostsOfModel(of_layer, {2}).value().stages[0].forward;
  };
  EXPECT_LT(rate("llama-3.2-1b"), 0.9 * rate("llama-3-405b"));
}

TEST(TransformerEngine, FusedExpertsAndGraphsAreFaster) {
  ModelRequest request = TransformerEngineRun("qwen3-30b-a3b", "gb200");
  request.precision = "mxfp8";
  request.dispatcher = "hybridep";
  request.nodes = "2x4";
  request.data = request.expert = 8;
  request.cuda_graphs = "full";
  const double graphs = SecondsOf(request);
  request.fused_experts = true;
  EXPECT_LT(SecondsOf(request), 0.9 * graphs);
  request.fused_experts = false;
  request.cuda_graphs = "partial";
  const double partial = SecondsOf(request);
  EXPECT_GT(partial, 1.1 * graphs);
  request.cuda_graphs = "none";
  EXPECT_GT(SecondsOf(request), partial);
  request.drops_tokens = true;  // no rank waits for the number of rows
  EXPECT_LT(SecondsOf(request), partial);
  // The host waits for nobody if the device has enough to do.
  request.drops_tokens = false;
  request.micro_batch_size = 16;
  const double large = SecondsOf(request);
  request.cuda_graphs = "full";
  EXPECT_NEAR(SecondsOf(request) / large, 1, 0.02);
}

TEST(TransformerEngine, DispatchersDifferInBytesAndInPermutations) {
  ModelRequest request = TransformerEngineRun("deepseek-v3", "h100");
  request.cuda_graphs = "full";
  request.nodes = "8x8";
  request.data = request.expert = 64;
  const auto seconds = [&](const char* dispatcher) {
    request.dispatcher = dispatcher;
    return SecondsOf(request);
  };
  const double once = seconds("hybridep");
  EXPECT_EQ(seconds("deepep"), once);
  EXPECT_GT(seconds("all-to-all"), 1.1 * once);
  request.consecutive_experts = true;  // on two ranks of one node
  EXPECT_LT(seconds("hybridep"), 0.8 * once);
  request.consecutive_experts = false;
  request.overlapped_experts = true;
  EXPECT_LT(seconds("hybridep"), 0.95 * once);
  // A rack has all 64 ranks.
  request.overlapped_experts = false;
  request.device = "gb200";
  request.nodes = "16x4";
  const double in_rack = seconds("hybridep");
  request.device = "b200";
  request.nodes = "8x8";
  EXPECT_GT(seconds("hybridep"), 1.1 * in_rack);
}

TEST(TransformerEngine, AllGathersSendEveryTokenToEveryRank) {
  for (const char* implementation : {"transformer-engine", "megatron", "penstock"}) {
    ModelRequest request = TransformerEngineRun("mixtral-8x7b", "h100");
    request.implementation = implementation;
    request.nodes = "2x8";
    request.data = request.expert = 8;
    request.hidden_communication = 0;
    const double some = SecondsOf(request);
    request.dispatcher = "all-gather";
    EXPECT_GT(SecondsOf(request), some) << implementation;
  }
}

TEST(TransformerEngine, AttentionIsFasterWithNewerKernelsAndLongerSteps) {
  ModelRequest request = TransformerEngineRun("llama-2-7b", "h100");
  request.sequence = 65536;
  request.release = "2025-06";
  const double newer = SecondsOf(request);
  request.release = "2024-07";
  EXPECT_GT(SecondsOf(request), 1.3 * newer);
  request.release = "2025-06";
  request.context = 8;
  EXPECT_GT(8 * SecondsOf(request), 1.03 * newer);
}

TEST(TransformerEngine, LayersWithExpertsMayAlternate) {
  ModelRequest request = TransformerEngineRun("mixtral-8x7b", "h100");
  const double all = SecondsOf(request);
  request.experts_every = 2;
  const ModelShape shape = request.Load()->shape;
  int with = 0;
  for (std::int64_t i = 0; i < shape.layers; ++i) with += shape.has_experts(i) ? 1 : 0;
  EXPECT_EQ(2 * with, shape.layers);
  EXPECT_TRUE(shape.has_experts(shape.layers - 1));
  EXPECT_LT(SecondsOf(request), all);
}

TEST(TransformerEngine, FrozenWeightsHaveNoGradients) {
  ModelRequest request = TransformerEngineRun("llama-3-70b", "gb300");
  request.nodes = "2x4";
  request.data = 8;
  request.zero = 1;
  const StageCosts trained = OnlyStage(request);
  request.lora = true;
  const StageCosts frozen = OnlyStage(request);
  EXPECT_GT(frozen.forward, trained.forward);  // by its adapters
  request.qkv_adapters = true;
  EXPECT_LT(OnlyStage(request).forward, frozen.forward);
  // The first stage computes what it passes to its adapters.
  EXPECT_LT(frozen.backward_weight, 0.7 * trained.backward_weight);
  EXPECT_EQ(frozen.gradients, 0);
  EXPECT_EQ(frozen.optimizer, 0);
  EXPECT_EQ(frozen.reduce + frozen.unshard + frozen.step, 0);
  EXPECT_GT(trained.reduce, 0);
}

TEST(TransformerEngine, ShardsOfWeightsAreGatheredInEachMicrobatch) {
  ModelRequest request = TransformerEngineRun("llama-3-70b", "gb200");
  request.nodes = "16x4";
  request.data = 64;
  request.zero = 1;
  const StageCosts once = OnlyStage(request);
  EXPECT_GT(once.unshard, 0);
  request.zero = 3;
  const StageCosts each = OnlyStage(request);
  EXPECT_EQ(each.unshard + each.reduce, 0);
  EXPECT_GT(each.forward, once.forward);
  request.offloaded_layers = 40;
  const StageCosts offloaded = OnlyStage(request);
  EXPECT_GT(offloaded.forward, each.forward);
  request.offloaded_layers = 20;
  EXPECT_NEAR(OnlyStage(request).forward, (each.forward + offloaded.forward) / 2, 1e-6);
}

TEST(TransformerEngine, DevicesHaveFactorsThatAFileOrOptionReplaces) {
  ModelRequest request = TransformerEngineRun("llama-3-8b", "gb300");
  request.precision = "mxfp8";
  const double usual = request.Load()->cluster.time_factor, seconds = SecondsOf(request);
  EXPECT_GT(usual, 0.7);
  EXPECT_LT(usual, 1);
  request.time_factor = 1;
  EXPECT_NEAR(SecondsOf(request), seconds / usual, 1e-9 * seconds);
  request.time_factor.reset();
  request.device = "mi355x";
  EXPECT_GT(request.Load()->cluster.time_factor, 1);
  request.device = "gb300";
  request.implementation = "penstock";
  request.precision = "bf16";
  EXPECT_EQ(request.Load()->cluster.time_factor, 1);
}

TEST(TransformerEngine, RanksMayHaveCopiesOfHeadsOfKeysAndValues) {
  ModelRequest request = TransformerEngineRun("nemotron-3-nano", "gb200");  // 2 such heads
  request.tensor = 2;
  request.nodes = "2x4";
  const double two = SecondsOf(request);
  request.tensor = 8;
  EXPECT_LT(SecondsOf(request), two);
  request.tensor = 64;  // of 32 heads
  request.nodes = "16x4";
  EXPECT_FALSE(request.Load());
  request.tensor = 8;
  request.implementation = "torch";
  EXPECT_FALSE(request.Load());
}

TEST(TransformerEngine, PricesAllModels) {
  for (const ModelShape& shape : PublishedModels()) {
    ModelRequest request = TransformerEngineRun(shape.name.c_str(), "b300");
    request.precision = "mxfp8";
    const double seconds = SecondsOf(request);
    EXPECT_GT(seconds, 0) << shape.name;
    EXPECT_LT(seconds, 60) << shape.name;
  }
}

TEST(Cluster, JobsUseEquallyManyDevicesOfEachRack) {
  Cluster cluster;
  cluster.device = FindDevice("gb200").value();
  cluster.devices_per_node = 4;
  const auto linked = [&](int nodes) {
    cluster.nodes = nodes;
    return cluster.linked_devices();
  };
  EXPECT_EQ(linked(1), 4);
  EXPECT_EQ(linked(2), 8);
  EXPECT_EQ(linked(18), 72);
  EXPECT_EQ(linked(32), 64);
  EXPECT_EQ(linked(36), 72);
  cluster.device = FindDevice("b200").value();
  EXPECT_EQ(linked(32), 4);
}

}  // namespace
}  // namespace penstock
