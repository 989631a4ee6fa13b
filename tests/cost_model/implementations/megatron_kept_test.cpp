// Sums by hand of what Megatron-LM keeps, for the GPT of its functional tests: 12 layers of width
// 512 with 8 heads, 4 samples of 1024 tokens.
#include "cost_model/implementations/megatron_kept.h"

#include <gtest/gtest.h>

#include "cost_model/implementations/megatron_overhead.h"
#include "cost_model/model_costs.h"

namespace penstock {
namespace {

constexpr double kTokens = 4096, kDim = 512, kHidden = 2048, kVocabulary = 50'304;
constexpr double kScores = 4.0 * 8 * 1024 * 1024;
constexpr double kMiB = 1 << 20;
constexpr MegatronKernels kEngine = MegatronKernels::kTransformerEngine;

ModelShape Gpt() {
  return {.name = "gpt",
          .vocabulary = 50'304,
          .dim = 512,
          .layers = 12,
          .heads = 8,
          .kv_heads = 8,
          .head_dim = 64,
          .hidden = 2048,
          .positions = 1024,
          .tied = true,
          .gated = false};
}

Microbatch Batch(AttentionKernel attention = AttentionKernel::kFused) {
  Microbatch batch{.samples = 4, .sequence = 1024};
  batch.profile.attention = attention;
  batch.profile.linear_biases = true;
  return batch;
}

double KeptBy(const ModelShape& shape, const Microbatch& batch, MegatronKernels kernels = kEngine) {
  return KeptFromForward(MegatronKeptByLayer(shape, 0, batch, kernels));
}

// Both norms keep 4 bytes per element and 8 per token; attention keeps queries, keys, values and
// its output with a log-sum-exp per head; the feed-forward part both sides of its activation.
constexpr double kNorms = 2 * (4 * kTokens * kDim + 8 * kTokens);
constexpr double kProjections = 8 * kTokens * kDim, kActivations = 4 * kTokens * kHidden;
constexpr double kLogSumExp = 4 * kTokens * 8;

TEST(MegatronKept, AddsUpTheTensorsOfALayer) {
  EXPECT_EQ(KeptBy(Gpt(), Batch()), kNorms + kProjections + kLogSumExp + kActivations);
}

TEST(MegatronKept, HasMasksOfDropout) {
  Microbatch batch = Batch();
  batch.profile.dropout = true;
  EXPECT_EQ(KeptBy(Gpt(), batch),
            kNorms + kProjections + kLogSumExp + kActivations + 2 * kTokens * kDim);
}

TEST(MegatronKept, HasASecondOutputOfFlashAttentionUnlessThereIsOneSample) {
  Microbatch batch = Batch(AttentionKernel::kFlash);
  EXPECT_EQ(KeptBy(Gpt(), batch) - KeptBy(Gpt(), Batch()), 2 * kTokens * kDim);
  batch.samples = 1;
  Microbatch fused = Batch();
  fused.samples = 1;
  EXPECT_EQ(KeptBy(Gpt(), batch), KeptBy(Gpt(), fused));
}

TEST(MegatronKept, HasScoresOfUnfusedAttentionAndRepeatedKeys) {
  ModelShape shape = Gpt();
  Microbatch batch = Batch(AttentionKernel::kUnfused);
  EXPECT_EQ(KeptBy(shape, batch) - KeptBy(shape, Batch()), 2 * kScores - kLogSumExp);
  batch.profile.dropout = true;
  EXPECT_EQ(KeptBy(shape, batch) - KeptBy(shape, Batch()),
            5 * kScores - kLogSumExp + 2 * kTokens * kDim);
  batch.profile.dropout = false;
  shape.kv_heads = 2;
  EXPECT_EQ(KeptBy(shape, batch) - KeptBy(shape, Batch()),
            2 * kScores - kLogSumExp + 4 * kTokens * kDim * 6 / 8);
}

// --use-flash-attn of Megatron-LM's own layers.
TEST(MegatronKept, OwnKernelsStoreScoresUnlessFlashAttentionIsAskedFor) {
  EXPECT_EQ(KeptBy(Gpt(), Batch(AttentionKernel::kAuto), MegatronKernels::kLocal),
            KeptBy(Gpt(), Batch(AttentionKernel::kUnfused)));
  EXPECT_EQ(KeptBy(Gpt(), Batch(AttentionKernel::kFlash), MegatronKernels::kLocal),
            KeptBy(Gpt(), Batch(AttentionKernel::kFlash)));
}

TEST(MegatronKept, IsDividedByTensorParallelismWithTheSequence) {
  Microbatch batch = Batch();
  batch.tensor = 4;
  EXPECT_EQ(KeptBy(Gpt(), batch), KeptBy(Gpt(), Batch()) / 4);
  batch.sequence_parallel = false;
  EXPECT_EQ(KeptBy(Gpt(), batch), kNorms + (kProjections + kLogSumExp + kActivations) / 4);
}

TEST(MegatronKept, HasOneByteOfInputsOfFp8Matmuls) {
  Microbatch batch = Batch();
  batch.precision = Precision::kFp8;
  // The outputs of both norms, of the attention and of the activation.
  EXPECT_EQ(KeptBy(Gpt(), Batch()) - KeptBy(Gpt(), batch), kTokens * (3 * kDim + kHidden));
}

TEST(MegatronKept, CountsRowsOfExperts) {
  ModelShape shape = Gpt();
  shape.experts = ExpertShape{.experts = 8, .top_k = 2, .hidden = 1024};
  Microbatch batch = Batch();
  const double attention = kNorms + kProjections + kLogSumExp;
  // Rows, both sides of the activation and its output before the router's weight.
  const double rows = 2 * kTokens * (2 * kDim + 6 * 1024);
  EXPECT_EQ(KeptBy(shape, batch), attention + rows + 12 * kTokens * 8);
  batch.expert_imbalance = 1.5;
  EXPECT_EQ(KeptBy(shape, batch), attention + 1.5 * rows + 12 * kTokens * 8);
}

// Runs with attention `auto`, by device, release and determinism.
TEST(MegatronKept, ChoosesAttentionAsTheEngineDoes) {
  using enum AttentionKernel;
  Profile profile = {.generation = Generation::kAmpere};
  EXPECT_EQ(MegatronAttention(profile, kEngine), kFlash);
  profile.deterministic = true;
  EXPECT_EQ(MegatronAttention(profile, kEngine), kFlash);
  profile.release = "2024-01";
  EXPECT_EQ(MegatronAttention(profile, kEngine), kUnfused);
  profile.release = "2025-10";
  profile.generation = Generation::kHopper;
  EXPECT_EQ(MegatronAttention(profile, kEngine), kFused);
  profile.generation = Generation::kBlackwell;
  EXPECT_EQ(MegatronAttention(profile, kEngine), kFlash);
  profile.deterministic = false;
  EXPECT_EQ(MegatronAttention(profile, kEngine), kFused);
  EXPECT_EQ(MegatronAttention(profile, MegatronKernels::kLocal), kUnfused);
}

TEST(MegatronKept, LossNeedsSixBytesPerLogit) {
  const double kept = KeptFromForward(MegatronKeptByLogits(Gpt(), Batch()));
  EXPECT_EQ(kept + MegatronLossTransient(Gpt(), Batch()), 6 * kTokens * kVocabulary);
  Microbatch fused = Batch();
  fused.profile.fused_loss = true;
  EXPECT_EQ(kept + MegatronLossTransient(Gpt(), fused), 10 * kTokens * kVocabulary);
  fused.profile.release = "2025-10";
  EXPECT_EQ(kept + MegatronLossTransient(Gpt(), fused), 14 * kTokens * kVocabulary);
}

TEST(MegatronParameters, CountBiasesAndCopies) {
  const ModelShape shape = Gpt();
  const LayerRange whole{.begin = 0, .end = 12, .embedding = true, .head = true};
  Microbatch batch = Batch();
  const double layer = 12 * kDim * kDim + 9 * kDim + 2 * kDim;  // matrices, biases and norms
  const double tables = (kVocabulary + 1024) * kDim, last = kDim;
  EXPECT_EQ(MegatronParameters(shape, whole, batch).all(), 12 * layer + tables + last);
  batch.tensor = 2;
  const double copied = 12 * 4 * kDim + 1024 * kDim + kDim;  // norms, two biases, positions
  EXPECT_EQ(MegatronParameters(shape, whole, batch).all(),
            (12 * layer + tables + last + copied) / 2);
}

TEST(MegatronStates, SumGradientsOfFp16InFp16) {
  Microbatch batch;
  EXPECT_EQ(MegatronStates(batch).gradient, 4);
  batch.precision = Precision::kFp16;
  EXPECT_EQ(MegatronStates(batch).gradient, 2);
  EXPECT_EQ(MegatronStates(batch).working + MegatronStates(batch).master, 6);
}

// Llama 3 8B on 8 H100 with context 2: NeMo logs 44.3 GB of states.
TEST(MegatronStates, SumGradientsInBf16AsTheRecipesHaveIt) {
  Microbatch batch;
  batch.profile.implementation = FindImplementation("transformer-engine").value();
  EXPECT_EQ(MegatronStates(batch).gradient, 2);
  batch.profile.fp32_gradients = true;
  EXPECT_EQ(MegatronStates(batch).gradient, 4);
}

TEST(MegatronOverhead, HasWorkspacesOfLibraries) {
  Microbatch batch = Batch();
  batch.profile.generation = Generation::kAmpere;
  EXPECT_EQ(MegatronOverhead(Gpt(), batch, {}, kEngine).workspace, 20.25 * kMiB);
  EXPECT_EQ(MegatronOverhead(Gpt(), batch, {}, MegatronKernels::kLocal).workspace, 16.25 * kMiB);
  batch.profile.deterministic = true;
  EXPECT_EQ(MegatronOverhead(Gpt(), batch, {}, kEngine).workspace, 68 * kMiB);
  batch.profile.generation = Generation::kHopper;
  EXPECT_EQ(MegatronOverhead(Gpt(), batch, {}, kEngine).workspace, 96 * kMiB);
}

TEST(MegatronOverhead, HasMessagesAndMasks) {
  Microbatch batch = Batch();
  EXPECT_EQ(MegatronOverhead(Gpt(), batch, {}, kEngine).messages, 0);
  EXPECT_EQ(MegatronOverhead(Gpt(), batch, {3, 4, 2}, kEngine).messages, 4 * kTokens * kDim);
  EXPECT_EQ(MegatronOverhead(Gpt(), batch, {}, kEngine).others, 0);
  batch.profile.attention_mask = true;
  EXPECT_EQ(MegatronOverhead(Gpt(), batch, {}, kEngine).others, 4 * 1024 * 1024);
  batch.profile.attention = AttentionKernel::kAuto;
  EXPECT_EQ(MegatronOverhead(Gpt(), batch, {}, MegatronKernels::kLocal).others,
            4 * 1024 * 1024 + 2 * kScores);
}

// What a stage of four layers keeps, and what else it needs.
KeptBytes StageOf(const char* recompute, const char* implementation = "megatron") {
  Microbatch batch = Batch(AttentionKernel::kAuto);
  batch.profile.implementation = FindImplementation(implementation).value();
  batch.profile.dropout = true;
  return KeptByStage(Gpt(), {.begin = 4, .end = 8}, batch, ParseRecompute(recompute).value());
}

TEST(KeptByStage, FreesTheModulesThatAreComputedAgain) {
  const double all = StageOf("none").from_forward;
  EXPECT_EQ(all - StageOf("selective:core_attn").from_forward, 4 * 5 * kScores);
  EXPECT_EQ(all - StageOf("selective:mlp").from_forward, 4 * kActivations);
  EXPECT_EQ(all - StageOf("selective:act").from_forward, 4 * 2 * kTokens * kHidden);
  EXPECT_EQ(all - StageOf("selective:norm").from_forward, 4 * 4 * kTokens * kDim);
  EXPECT_EQ(all - StageOf("selective:norm,mlp,act").from_forward,
            4 * (4 * kTokens * kDim + kActivations));
  EXPECT_EQ(StageOf("full").from_forward, 4 * 2 * kTokens * kDim);
  EXPECT_EQ(StageOf("full:2").from_forward, 2 * 2 * kTokens * kDim);
}

TEST(KeptByStage, AllocatesThemAgainForOneLayer) {
  const double none = StageOf("none").transient;
  EXPECT_EQ(StageOf("selective:core_attn").transient - none, 5 * kScores);
  EXPECT_EQ(StageOf("full").transient - none, StageOf("none").from_forward / 4);
}

TEST(KeptByStage, FreesModulesOfOurOwnEngine) {
  const double all = StageOf("none", "penstock").from_forward;
  EXPECT_EQ(StageOf("none", "penstock").transient, 0);
  EXPECT_EQ(all - StageOf("selective:mlp", "penstock").from_forward, 4 * kActivations);
  EXPECT_EQ(all - StageOf("selective:core_attn", "penstock").from_forward, 4 * kLogSumExp);
}

// Modules whose tensors wait in the memory of the host leave only the tensors of two layers.
TEST(KeptByStage, OffloadsModules) {
  ModelShape shape = Gpt();
  shape.experts = ExpertShape{.experts = 8, .top_k = 2, .hidden = 1024};
  Microbatch batch = Batch();
  batch.profile.implementation = FindImplementation("megatron").value();
  const LayerRange stage{.begin = 4, .end = 8};
  const KeptBytes all = KeptByStage(shape, stage, batch);
  batch.profile.offloaded_modules = ParseOffloadedModules("expert_fc1,attn_norm").value();
  const KeptBytes some = KeptByStage(shape, stage, batch);
  const double moved = 2 * 2 * kTokens * kDim + 2 * kTokens * kDim;  // rows of experts, one input
  EXPECT_EQ(all.from_forward - some.from_forward, 4 * moved);
  EXPECT_EQ(some.offloaded, 4 * moved);
  EXPECT_EQ(some.transient - all.transient, 2 * moved);
  EXPECT_FALSE(ParseOffloadedModules("mlp"));
}

// Two instances of the distributed optimizer divide states among half of the replicas, and states
// of experts among half of theirs.
TEST(ModelCosts, DivideStatesByInstances) {
  ModelOnCluster model;
  model.shape = Gpt();
  model.shape.experts = ExpertShape{.experts = 8, .top_k = 2, .hidden = 1024};
  model.batch = Batch();
  model.batch.expert = 4;
  model.data = 8;
  model.zero = 1;
  model.cluster.device = FindDevice("h100").value();
  const ParameterCount count = ParametersOfStage(
      model.shape, {.begin = 0, .end = 12, .embedding = true, .head = true}, model.batch);
  const auto optimizer = [&](int zero_ranks) {
    model.zero_ranks = zero_ranks;
    return CostsOfModel(model, {1})->states[0].optimizer;
  };
  EXPECT_DOUBLE_EQ(optimizer(0), 8 * (count.others / 8 + count.of_experts / 2));
  EXPECT_DOUBLE_EQ(optimizer(4), 8 * (count.others / 4 + count.of_experts));
}

}  // namespace
}  // namespace penstock
