// What FSDP sends, against counts by hand: collectives times bytes, on devices on which nothing but
// messages takes time.
#include "cost_model/fsdp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "base/index.h"
#include "cost_model/parameters.h"
#include "cost_model/request/model_request.h"
#include "cost_model/stage_layers.h"
#include "tests/results.h"

namespace penstock {
namespace {

struct Job {
  int layers = 1, data = 1, zero = 0, shards = 1, stages = 1, microbatches = 1;
  std::string implementation = {}, recompute = {};
};

ModelOnCluster OnlyMessages(const Job& run) {
  ModelRequest request;
  request.model = "llama-3-8b";
  request.layers = run.layers;
  request.implementation = run.implementation;
  request.recompute = run.recompute;
  request.data = run.data;
  request.zero = run.zero;
  request.nodes = fmt::format("1x{}", run.data * run.stages);
  if (run.shards < run.data) request.zero_ranks = run.shards;
  ModelOnCluster model = ValueOf(request.Load());
  Device& device = model.cluster.device;
  device.bf16_flops = device.memory_bandwidth = 1e30;
  device.latency = 0;
  device.link_bandwidth = 1e9;
  Speeds& speeds = model.cluster.speeds;
  speeds.device_launch = speeds.host_launch = 0;
  speeds.link = 1;
  return model;
}

// The bytes that a rank sends in a step for `parameters` parameters, in bf16 and fp32.
double BytesByHand(const Job& run, double parameters) {
  const bool has_pipeline = run.stages > 1;
  double gathers = 1, sums = 1;
  if (run.zero == 2 && !has_pipeline) gathers = sums = run.microbatches;
  if (run.zero == 3) {
    gathers = 2 * run.microbatches;
    if (!has_pipeline) sums = run.microbatches;
  }
  const double shards = run.shards, copies = run.data / shards;
  const double of_shards = (shards - 1) / shards;
  const double of_copies = 2 * (copies - 1) / copies / shards;
  return parameters * (gathers * 2 * of_shards + sums * 4 * (of_shards + of_copies));
}

double BytesPriced(const Job& run, const StageCosts& costs, const ModelOnCluster& model) {
  const double seconds =
      run.microbatches * (costs.forward + costs.backward_input + costs.backward_weight) +
      costs.unshard + costs.reduce;
  return seconds * model.cluster.device.link_bandwidth;
}

TEST(Fsdp, SendsWhatACountByHandGives) {
  std::mt19937 random(60);
  const auto pick = [&](auto... values) {
    const std::common_type_t<decltype(values)...> all[] = {values...};
    return all[random() % sizeof...(values)];
  };
  for (int i = 0; i < 300; ++i) {
    Job run;
    run.layers = pick(4, 8, 12, 20);
    run.data = pick(2, 4, 8);
    run.zero = pick(1, 2, 3);
    run.shards = std::min(run.data, pick(2, 4, 8));
    run.stages = pick(1, 2, 4);
    run.microbatches = pick(1, 3, 8, 17);
    run.implementation = pick("torch", "torch-compile");
    run.recompute = pick("none", "full", "selective", "block:2");
    const ModelOnCluster model = OnlyMessages(run);
    const ModelCosts costs = CostsOfModel(model, {run.stages}).value();
    for (int stage = 0; stage < run.stages; ++stage) {
      LayerRange layers;
      layers.begin = run.layers / run.stages * stage;
      layers.end = run.layers / run.stages * (stage + 1);
      layers.embedding = stage == 0;
      layers.head = stage == run.stages - 1;
      const double parameters = ParametersOfStage(model.shape, layers, model.batch).all();
      const double by_hand = BytesByHand(run, parameters);
      EXPECT_NEAR(BytesPriced(run, costs.stages[Index(stage)], model) / by_hand, 1, 1e-6)
          << "layers " << run.layers << " data " << run.data << " zero " << run.zero << " shards "
          << run.shards << " stages " << run.stages << " m " << run.microbatches << " "
          << run.recompute;
    }
  }
}

// Without a pipeline, 16 bytes per parameter are divided; with one, a rank also holds weights and
// gradients of its whole stage.
TEST(Fsdp, HoldsShardsOrWholeGradients) {
  for (const char* implementation : {"torch", "torch-compile"}) {
    Job run{.layers = 8, .data = 8, .zero = 3, .shards = 8, .implementation = implementation};
    run.recompute = "none";
    const ModelOnCluster alone = OnlyMessages(run);
    const double all = ModelParameters(alone.shape);
    EXPECT_NEAR(CostsOfModel(alone, {1}).value().states[0].total(), all * 16 / 8, 1);
    run.zero = 1;
    run.stages = 2;
    const ModelOnCluster pipeline = OnlyMessages(run);
    double held = 0;
    const ModelCosts costs = CostsOfModel(pipeline, {2}).value();
    for (const StateBytes& states : costs.states) held += states.total();
    EXPECT_NEAR(held, all * (2 + 4 + 12.0 / 8), 1);
  }
}

TEST(Fsdp, OtherImplementationsShardWithZero3Only) {
  Job run{.layers = 4, .data = 4, .zero = 2, .shards = 4, .implementation = "transformer-engine"};
  run.recompute = "none";
  EXPECT_EQ(ShardCountsOf(OnlyMessages(run), false).forward_gathers, 0);
  run.zero = 3;
  EXPECT_EQ(ShardCountsOf(OnlyMessages(run), true).backward_sums, 1);
}

}  // namespace
}  // namespace penstock
