// Costs of stages by the roofline, checked against arithmetic on the published sizes.
#include "cost_model/model_costs.h"

#include <gtest/gtest.h>

#include <span>

#include "cost_model/parameters.h"
#include "cost_model/published_models.h"
#include "tests/cost_model/work_of_stage.h"
#include "tests/results.h"

namespace penstock {
namespace {

ModelOnCluster OnCluster(const char* name) {
  ModelOnCluster model;
  model.shape = FindPublishedModel(name).value();
  model.cluster.device = FindDevice("h100").value();
  return model;
}

ModelCosts Costs4(const ModelOnCluster& model) {
  EXPECT_TRUE(CheckDivision(model));
  return CostsOfModel(model, {4}).value();
}

// The work of one 4096-token microbatch.
TEST(LayerWork, CountsSixFlopsPerParameterAndToken) {
  const ModelShape shape = FindPublishedModel("llama-3-8b").value();
  const Work work = WorkOfStage(shape, {1, 2}, {});
  const double matrices = AttentionParameters(shape) + FeedForwardParameters(shape, 1) - 2 * 4096;
  const double product = 2.0 * 4096 * 4096 * 4096;  // of all heads' queries and keys
  EXPECT_EQ(FlopsOf(work.forward), 2 * 4096 * matrices + 2 * product);
  EXPECT_EQ(FlopsOf(work.backward_input), 2 * 4096 * matrices + 5 * product);
  EXPECT_EQ(FlopsOf(work.backward_weight), 2 * 4096 * matrices);
  EXPECT_GT(BytesOf(work.backward_weight), matrices * 8);
}

// Korthikanti et al. 2022, equation 1, counts 34 bytes per token and hidden unit. Ours lacks
// dropout's masks (2) and the inputs of norms in bf16 (4), and has both in fp32 (8) and normalized
// (4).
TEST(KeptTensors, AreFortyBytesPerTokenAndHiddenUnitOfGpt2) {
  const ModelShape shape = FindPublishedModel("gpt2-xl").value();
  const Microbatch batch{.sequence = 1024};
  const double per_unit = (KeptFromForward(KeptByAttention(shape, batch)) +
                           KeptFromForward(KeptByFeedForward(shape, 0, batch))) /
                          (1024.0 * 1600);
  const double small = (2 * 4.0 + 4.0 * 25) / 1600;  // 1 / deviation, and log-sum-exp
  EXPECT_NEAR(per_unit, 34 - 2 - 4 + 8 + 4 + small, 1e-9);
}

TEST(ModelCosts, TakeAsLongAsTheLongerOfFlopsAndTraffic) {
  ModelOnCluster model = OnCluster("llama-3-8b");
  const StageCosts slow = Costs4(model).stages[1];
  model.cluster.device.memory_bandwidth = 1e30;  // only FLOPs matter
  const StageCosts by_flops = Costs4(model).stages[1];
  const Work work = WorkOfStage(model.shape, {8, 16}, model.batch);
  double skipped = 0;
  for (const KernelCost& kernel : work.forward) skipped += kernel.skipped;
  EXPECT_DOUBLE_EQ(by_flops.forward,
                   (FlopsOf(work.forward) - skipped) / (989.4e12 * Speeds{}.of(Precision::kBf16)));
  EXPECT_GT(slow.forward, by_flops.forward);
  EXPECT_LT(slow.forward, 1.3 * by_flops.forward);
  model.cluster.device = FindDevice("h100").value();
  model.cluster.device.bf16_flops = 1e30;  // only bytes matter
  EXPECT_NEAR(Costs4(model).stages[1].forward, BytesOf(work.forward) / (3.35e12 * Speeds{}.memory),
              1e-15);
}

TEST(ModelCosts, OfTheEndsIncludeEmbeddingAndHead) {
  const ModelOnCluster model = OnCluster("llama-3-8b");
  const ModelCosts costs = Costs4(model);
  ASSERT_EQ(costs.stages.size(), 4u);
  EXPECT_EQ(costs.stages[0].backward_input, 0);  // nobody reads the gradient of token ids
  EXPECT_GT(costs.stages[0].backward_weight,
            costs.stages[1].backward_input + costs.stages[1].backward_weight);
  EXPECT_EQ(costs.stages[1].forward, costs.stages[2].forward);
  EXPECT_GT(costs.stages[3].forward, 1.2 * costs.stages[2].forward);
  EXPECT_EQ(costs.message_bytes, 4096.0 * 4096 * 2);
  EXPECT_DOUBLE_EQ(costs.comm, 10e-6 + costs.message_bytes / (450e9 * 0.8));
}

TEST(ModelCosts, AreDividedByTensorParallelRanks) {
  ModelOnCluster model = OnCluster("llama-3-70b");
  const ModelCosts whole = Costs4(model);
  model.batch.tensor = 4;
  const ModelCosts parts = Costs4(model);
  EXPECT_NEAR(parts.states[1].total(), whole.states[1].total() / 4, 1);
  EXPECT_GT(parts.stages[1].activation, whole.stages[1].activation / 4);  // gathered inputs
  EXPECT_GT(parts.stages[1].forward, whole.stages[1].forward / 4);  // ranks exchange hidden states
  EXPECT_LT(parts.stages[1].forward, whole.stages[1].forward / 3);
  EXPECT_EQ(parts.message_bytes, whole.message_bytes / 4);
  model.batch.gather_again = true;
  const StageCosts again = Costs4(model).stages[1];
  EXPECT_NEAR(again.activation, whole.stages[1].activation / 4, 1);
  EXPECT_EQ(again.forward, parts.stages[1].forward);
  EXPECT_GT(again.backward_weight, parts.stages[1].backward_weight);
}

TEST(ModelCosts, HaveFewerBytesPerRankWithZero) {
  ModelOnCluster model = OnCluster("llama-3-8b");
  const double parameters = ParametersOfStage(model.shape, {8, 16}, model.batch).all();
  model.data = 4;
  const auto bytes_of = [&](int zero) {
    model.zero = zero;
    return Costs4(model).states[1].total() / parameters;
  };
  EXPECT_DOUBLE_EQ(bytes_of(0), 2 + 4 + 4 + 8);  // weights, masters, gradients, moments
  EXPECT_DOUBLE_EQ(bytes_of(1), 2 + 4 + (4 + 8) / 4.0);
  EXPECT_DOUBLE_EQ(bytes_of(2), 2 + (4 + 4 + 8) / 4.0);
  EXPECT_DOUBLE_EQ(bytes_of(3), (2 + 4 + 4 + 8) / 4.0);
}

TEST(ModelCosts, DivideExpertsAmongReplicas) {
  ModelOnCluster model = OnCluster("mixtral-8x7b");
  model.data = 8;
  const ModelCosts whole = Costs4(model);
  model.batch.expert = 4;
  const ModelCosts parts = Costs4(model);
  const double of_experts = 8 * ExpertParameters(model.shape, 0);
  EXPECT_NEAR(whole.states[1].total() - parts.states[1].total(), 18 * of_experts * 3 / 4, 1);
  EXPECT_GT(parts.stages[1].forward, 0.9 * whole.stages[1].forward);
}

// A ring in the node, then rings across nodes for a part of the bytes.
TEST(ModelCosts, GatherAndReduceShardsInNodesAndAcrossThem) {
  ModelOnCluster model = OnCluster("llama-3-8b");
  model.cluster.nodes = 8;
  model.batch.tensor = 2;
  const double parameters = ParametersOfStage(model.shape, {8, 16}, model.batch).all();
  const double node = 450e9 * Speeds{}.memory, network = 50e9 * Speeds{}.memory;
  model.data = 4;
  EXPECT_DOUBLE_EQ(Costs4(model).stages[1].unshard, 3 * (10e-6 + 2 * parameters / 4 / node));
  EXPECT_DOUBLE_EQ(Costs4(model).stages[1].reduce, 3 * (10e-6 + 4 * parameters / 4 / node));
  model.data = 16;
  EXPECT_DOUBLE_EQ(
      Costs4(model).stages[1].unshard,
      3 * (10e-6 + 2 * parameters / 4 / node) + 3 * (10e-6 + 2 * parameters / 16 / network));
  model.batch.tensor = 8;
  model.data = 4;
  EXPECT_DOUBLE_EQ(Costs4(model).stages[1].unshard, 3 * (10e-6 + 2 * parameters / 4 / 4 / network));
  model.data = 1;
  EXPECT_EQ(Costs4(model).stages[1].unshard, 0);
}

TEST(ModelCosts, PayALatencyPerCollectiveOfALayer) {
  ModelOnCluster model = OnCluster("llama-3-70b");
  model.batch.tensor = 4;
  const StageCosts at_once = Costs4(model).stages[1];
  model.cluster.device.latency += 1;
  const StageCosts late = Costs4(model).stages[1];
  // 20 layers, each with two collectives of attention and two of the feed-forward layer.
  EXPECT_NEAR(late.forward - at_once.forward, 20 * 4, 1e-9);
  EXPECT_NEAR(late.backward_input - at_once.backward_input, 20 * 4, 1e-9);
  EXPECT_EQ(late.backward_weight, at_once.backward_weight);  // reads what F has gathered
  EXPECT_NEAR(late.step - at_once.step, 1, 1e-9);            // gradients of norms
  EXPECT_NEAR(CostsOfModel(model, {.stages = 4, .slices = 8}).value().stages[1].forward, 20 * 4, 1);
}

TEST(ModelCosts, OfSlicesAddUpToThoseOfTheMicrobatch) {
  ModelOnCluster model = OnCluster("qwen3-8b");
  model.cluster.device.memory_bandwidth = 1e30;  // each slice reads the weights again
  const StageCosts whole = CostsOfModel(model, {4}).value().stages[3];
  const ModelCosts costs = CostsOfModel(model, {.stages = 4, .slices = 8}).value();
  ASSERT_EQ(costs.by_slice.size(), 32u);
  const std::span slices = std::span(costs.by_slice).last(8);
  double forward = 0, backward = 0, kept = 0;
  for (const StageCosts& slice : slices) {
    forward += slice.forward;
    backward += slice.backward_input;
    kept += slice.activation_after_i;
    EXPECT_EQ(slice.step, whole.step);
    EXPECT_EQ(slice.weights, whole.weights);
  }
  EXPECT_NEAR(forward / whole.forward, 1, 1e-12);
  EXPECT_NEAR(backward / whole.backward_input, 1, 1e-12);
  EXPECT_NEAR(kept / whole.activation_after_i, 1, 1e-12);
  EXPECT_NEAR(costs.stages[3].forward * 8, whole.forward, 1e-12);
  // Each slice attends to one more slice than the one before.
  const double step = slices[1].forward - slices[0].forward;
  for (std::size_t i = 2; i < 8; ++i) {
    EXPECT_NEAR(slices[i].forward - slices[i - 1].forward, step, 1e-9 * step);
  }
  EXPECT_GT(step, 0);
  EXPECT_FALSE(CostsOfModel(model, {.stages = 4, .slices = 3}));
}

TEST(ModelCosts, OfASharedVocabularyAreThoseOfTheEndsOnAllRanks) {
  const ModelOnCluster model = OnCluster("llama-3-8b");
  const ModelCosts ends = Costs4(model);
  const ModelCosts shared = CostsOfModel(model, {.stages = 4, .vocabulary_ranks = 4}).value();
  const auto sum = [](const ModelCosts& costs, auto of_stage) {
    double total = 0;
    for (const StageCosts& stage : costs.stages) total += of_stage(stage);
    return total;
  };
  const auto times = [](const StageCosts& stage) {
    return stage.forward + stage.backward_input + stage.backward_weight + stage.vocabulary_input +
           stage.vocabulary_weight;
  };
  // The first stage computes an input gradient, and each rank reads all hidden states.
  EXPECT_NEAR(sum(shared, times) / sum(ends, times), 1, 0.02);
  const auto weights = [](const StageCosts& stage) { return stage.weights; };
  EXPECT_NEAR(sum(shared, weights), sum(ends, weights), 1);
  EXPECT_EQ(shared.stages[1].vocabulary_input, shared.stages[3].vocabulary_input);
  EXPECT_EQ(shared.stages[1].softmax, 4096 * 128256 / 4 * 4.0);
  EXPECT_NEAR(shared.stages[3].forward / shared.stages[2].forward, 1, 0.01);
  EXPECT_GT(shared.stages[0].backward_input, 0);
}

TEST(ModelCosts, HaveTheLinksOfANodeWhereNeighborsShareOne) {
  ModelOnCluster model = OnCluster("llama-3-70b");
  model.cluster.nodes = 4;
  EXPECT_EQ(Costs4(model).topology.levels.size(), 2u);
  EXPECT_EQ(Costs4(model).topology.levels[0].ranks, 8);
  model.batch.tensor = 2;
  EXPECT_EQ(Costs4(model).topology.levels[0].ranks, 4);
  model.batch.tensor = 8;  // a node has one rank
  EXPECT_TRUE(Costs4(model).topology.empty());
  model.batch.tensor = 2, model.cluster.nodes = 1;
  EXPECT_TRUE(Costs4(model).topology.empty());
}

TEST(ModelCosts, CommunicationOfLayersMayBeHidden) {
  ModelOnCluster model = OnCluster("llama-3-70b");
  model.batch.tensor = 8;
  const auto forward = [&](double hidden) {
    model.cluster.speeds.hidden_communication = hidden;
    return Costs4(model).stages[1].forward;
  };
  EXPECT_NEAR(forward(0) - forward(0.5), forward(0.5) - forward(1), 1e-12);
  EXPECT_GT(forward(0), 1.05 * forward(1));
}

TEST(ModelCosts, RefuseWhatCannotBeDivided) {
  const auto refused = [](auto change) {
    ModelOnCluster model = OnCluster("mixtral-8x7b");
    change(model);
    return LineOf(CheckDivision(model));
  };
  EXPECT_EQ(
      refused([](ModelOnCluster& m) { m.data = 3; }),
      "data_parallel 3: 3 ranks per stage (`tensor` 1 times `context` 1 times `data_parallel` "
      "3) do not divide 8 devices");
  EXPECT_EQ(refused([](ModelOnCluster& m) {
              m.cluster.nodes = 2;
              m.shape.heads = 24;
              m.batch.tensor = 16;
            }),
            "tensor 16: does not divide the 8 heads of keys and values of mixtral-8x7b");
  EXPECT_EQ(refused([](ModelOnCluster& m) { m.shape.kv_heads = 3, m.batch.tensor = 2; }),
            "tensor 2: does not divide the 3 heads of keys and values of mixtral-8x7b");
  EXPECT_EQ(refused([](ModelOnCluster& m) { m.batch.sequence = 5, m.batch.tensor = 2; }),
            "tensor 2: does not divide `sequence`, 5");
  EXPECT_EQ(refused([](ModelOnCluster& m) { m.data = 2, m.batch.expert = 4; }),
            "expert 4: 4 ranks (`expert` 4 times `expert_tensor` 1) do not divide the 2 of a stage "
            "(`tensor` 1 times `context` 1 times `data_parallel` 2)");
  EXPECT_EQ(LineOf(CostsOfModel(OnCluster("gpt2"), {13})),
            "gpt2: 12 layers cannot fill 13 stages; give more layers, or fewer ranks or chunks");
}

}  // namespace
}  // namespace penstock
