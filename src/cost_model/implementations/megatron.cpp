#include "cost_model/implementations/implementations.h"
#include "cost_model/implementations/kernel_list.h"
#include "cost_model/implementations/megatron_kept.h"
#include "cost_model/implementations/megatron_overhead.h"
#include "cost_model/rank_sizes.h"
#include "cost_model/stage_layers.h"

namespace penstock {
namespace {

constexpr MegatronKernels kKernels = MegatronKernels::kLocal;

// From 2022 on, all-reduces of the gradients of inputs run under the products that give the
// gradients of the same layer's weights (LinearWithGradAccumulationAndAsyncCommunication in
// megatron/core/tensor_parallel/layers.py).
constexpr std::string_view kFirstAsynchronous = "2022";

bool HidesBackward(const Microbatch& batch) {
  const std::string& release = batch.profile.release;
  return release.empty() || release >= kFirstAsynchronous;
}

bool HasBiases(const ModelShape& shape, const Microbatch& batch) {
  return shape.architecture == Architecture::kGpt2 || batch.profile.linear_biases;
}

// Adds the parts of a layer.
class MegatronLayer {
 public:
  MegatronLayer(const ModelShape& shape, const Microbatch& batch)
      : shape_(shape),
        batch_(batch),
        sizes_(shape, batch),
        list_(batch),
        e_(list_.element()),
        tokens_(batch.tokens()),
        hidden_states_(batch.tokens_of_rank() * sizes_.dim) {}

  void AddAttention(std::int64_t layer) {
    if (shape_.latent) {
      list_.Append(AttentionWork(shape_, layer, batch_));
      return;
    }
    AddNorm();
    AddProjectedAttention(layer);
    AddResidual();
  }
  void AddFeedForward(std::int64_t layer) {
    if (shape_.has_experts(layer)) {
      AddExperts(layer);
      return;
    }
    AddNorm();
    AddDense();
    AddResidual();
  }
  void AddMamba() { list_.Append(MambaWork(shape_, batch_)); }
  Work Take() { return list_.Take(); }

 private:
  void AddNorm() {
    list_.Within(kNorm);
    list_.Forward("norm", hidden_states_, 2 * e_);
    list_.Input("norm", hidden_states_, 3 * e_);
    list_.Weight("norm", hidden_states_, 2 * e_);
    list_.Within(0);
  }

  void AddProjectedAttention(std::int64_t layer) {
    const double queries = sizes_.heads * sizes_.head_dim;
    const double keys = 2 * sizes_.kv_heads * sizes_.head_dim;
    const double projected = tokens_ * (queries + keys);
    list_.Linear("qkv", tokens_, sizes_.dim, queries + keys);
    if (HasBiases(shape_, batch_)) list_.Weight("bias of qkv", projected, e_);
    if (shape_.architecture == Architecture::kDecoder) AddRotaryPositions(queries, keys);
    list_.ExchangeContext(tokens_ * queries, tokens_ * keys);
    if (batch_.profile.attention == AttentionKernel::kFlash ||
        batch_.profile.attention == AttentionKernel::kFused) {
      list_.FlashAttention(sizes_.heads, sizes_.kv_heads, sizes_.head_dim, shape_.window_of(layer));
    } else {
      list_.UnfusedAttention(sizes_.heads, sizes_.head_dim);
      list_.Input("joining of queries, keys and values", projected, 2 * e_, 2);
      list_.Forward("order of heads", tokens_ * queries, 2 * e_);
      list_.Input("order of heads", tokens_ * queries, 2 * e_);
    }
    list_.Linear("projection", tokens_, queries, sizes_.dim);
    AddSumOfRanks(2 * tokens_ * sizes_.dim * (queries + keys));
  }

  void AddRotaryPositions(double queries, double keys) {
    const double rotated = tokens_ * (queries + keys / 2);
    if (shape_.qk_norm) {
      list_.Forward("norms of heads", rotated, 2 * e_, 2);
      list_.Input("norms of heads", rotated, 3 * e_, 2);
      list_.Weight("norms of heads", rotated, 2 * e_, 2);
    }
    list_.Forward("rotary positions", rotated, 2 * e_, 2);
    list_.Input("rotary positions", rotated, 2 * e_, 2);
  }

  void AddDense() {
    const double width = sizes_.hidden, inner = tokens_ * width;
    const bool is_gated = shape_.architecture == Architecture::kDecoder && shape_.gated;
    const double first = is_gated ? 2 * width : width;
    list_.Within(kFeedForward);
    list_.Linear("fc1", tokens_, sizes_.dim, first);
    list_.Within(kFeedForward | kActivation);
    if (is_gated) {
      list_.Forward("silu and product", inner, 3 * e_);
      list_.Input("silu and product", inner, 5 * e_);
    } else {
      list_.Forward("bias and activation", inner, 2 * e_);
      list_.Input("activation", inner, 3 * e_);
    }
    if (HasBiases(shape_, batch_)) list_.Weight("bias of fc1", tokens_ * first, e_);
    list_.Within(kFeedForward);
    list_.Linear("fc2", tokens_, width, sizes_.dim);
    list_.Within(0);
    AddSumOfRanks(2 * tokens_ * sizes_.dim * first);
  }

  // Local layers run one expert after the other (SequentialMLP), each with its own kernels.
  void AddExperts(std::int64_t layer) {
    Work work = FeedForwardWork(shape_, layer, batch_);
    const double experts =
        static_cast<double>(shape_.experts->experts) / static_cast<double>(batch_.expert);
    for (Kernels* kernels : {&work.forward, &work.backward_input, &work.backward_weight}) {
      for (KernelCost& kernel : *kernels) {
        const bool is_of_expert = (kernel.modules & kSharedExperts) == 0 &&
                                  (kernel.is_linear || (kernel.modules & kActivation) != 0);
        if (is_of_expert) kernel.kernels = experts;
      }
    }
    list_.Append(work);
  }

  // Bias, dropout and the addition to the residual stream.
  void AddResidual() {
    const double elements = hidden_states_;
    const bool biases = HasBiases(shape_, batch_), dropout = batch_.profile.dropout;
    const double kernels = 1 + (biases ? 1 : 0) + (dropout ? 1 : 0);
    list_.Forward("bias, dropout and addition", elements, 3 * e_ + (dropout ? 1 : 0), kernels);
    list_.Input("addition", elements, 3 * e_);
    if (dropout) list_.Input("dropout", elements, 2 * e_ + 1);
    if (biases) list_.Weight("bias", elements, e_);
  }

  // The ranks that divide the layer add their parts in F; in the backward they add the gradients of
  // the inputs while they compute the gradients of the first matmul's weights, in `concurrent`
  // FLOPs. With a divided sequence, a sum is a reduce-scatter and a later all-gather. In the
  // backward only the former is hidden: the matmuls need what the latter gathers. W gathers the
  // inputs again while the gradients of the inputs are computed.
  void AddSumOfRanks(double concurrent) {
    const auto ranks = static_cast<double>(batch_.tensor);
    if (batch_.tensor == 1) return;
    const double sent = tokens_ * sizes_.dim * e_ * (ranks - 1) / ranks;
    KernelCost gather{.name = "gather", .sent = sent, .collectives = 1, .kernels = 0};
    KernelCost sum{.name = "sum over ranks", .sent = 2 * sent, .collectives = 2, .kernels = 0};
    list_.AddForward(sum);
    if (HidesBackward(batch_)) sum.hidden_by = gather.hidden_by = concurrent;
    if (!batch_.sequence_parallel) {
      list_.AddInput(sum);
      return;
    }
    list_.AddWeight(gather);
    gather.name = "scatter";
    list_.AddInput(gather);
    gather.name = "gather";
    gather.hidden_by = 0;
    list_.AddInput(gather);
  }

  const ModelShape& shape_;
  const Microbatch& batch_;
  RankSizes sizes_;
  KernelList list_;
  double e_;  // bytes of an element
  double tokens_;
  double hidden_states_;  // elements of a rank
};

StagePart MegatronLayerPart(const ModelShape& shape, std::int64_t layer, const Microbatch& batch) {
  using enum LayerKind;
  MegatronLayer list(shape, batch);
  const LayerKind kind = shape.kind(layer);
  if (kind == kBlock || kind == kAttention) list.AddAttention(layer);
  if (kind == kMamba) list.AddMamba();
  if (kind == kBlock || kind == kFeedForward || kind == kExperts) list.AddFeedForward(layer);
  return {.work = list.Take(),
          .kept = MegatronKeptByLayer(shape, layer, batch, kKernels),
          .is_layer = true,
          .transient = MegatronLayerTransient(shape, layer, batch, kKernels)};
}

// Rows of words and positions, their sum, and dropout.
StagePart MegatronEmbeddingPart(const ModelShape& shape, const Microbatch& batch) {
  KernelList list(batch);
  const double e = list.element();
  const double elements = batch.tokens_of_rank() * static_cast<double>(shape.dim);
  list.Forward("embedding", elements, 2 * e);
  list.Weight("embedding", elements, 2 * e, 2);
  if (shape.positions > 0) {
    list.Forward("positions", elements, 2 * e, 2);
    list.Weight("positions", elements, e);
  }
  if (batch.profile.dropout) {
    list.Forward("dropout", elements, 2 * e);
    list.Weight("dropout", elements, 2 * e);
  }
  return {.work = list.Take(), .kept = MegatronKeptByEmbedding(shape, batch)};
}

StagePart MegatronFinalNormPart(const ModelShape& shape, const Microbatch& batch) {
  KernelList list(batch);
  const double elements = batch.tokens_of_rank() * static_cast<double>(shape.dim);
  list.Forward("norm", elements, 2 * list.element());
  list.Input("norm", elements, 3 * list.element());
  list.Weight("norm", elements, 2 * list.element());
  return {.work = list.Take(), .kept = MegatronKeptByFinalNorm(shape, batch)};
}

// The loss of megatron/mpu/cross_entropy.py, operator by operator: a copy in fp32, maximum,
// difference, exponential, sum and quotient; backward, a scaled copy and its cast.
StagePart MegatronLogitsPart(const ModelShape& shape, const Microbatch& batch) {
  constexpr double kForwardBytes = 38, kBackwardBytes = 14;  // per logit
  constexpr int kForwardKernels = 8, kBackwardKernels = 4;
  constexpr int kSums = 3;  // over the ranks that divide the vocabulary: of one number per token
  const RankSizes sizes(shape, batch);
  KernelList list(batch);
  const double logits = batch.tokens() * sizes.vocabulary;
  list.Linear("head", batch.tokens(), sizes.dim, sizes.vocabulary);
  const double fused = batch.profile.fused_loss ? 2 * list.element() : 0;
  list.Forward("cross-entropy", logits, fused > 0 ? fused : kForwardBytes,
               fused > 0 ? 2 : kForwardKernels);
  list.Input("cross-entropy", logits, fused > 0 ? fused : kBackwardBytes,
             fused > 0 ? 1 : kBackwardKernels);
  const auto take = [&]() -> StagePart {
    return {.work = list.Take(),
            .kept = MegatronKeptByLogits(shape, batch),
            .transient = MegatronLossTransient(shape, batch)};
  };
  if (batch.tensor == 1) return take();
  const auto ranks = static_cast<double>(batch.tensor);
  const double part = (ranks - 1) / ranks;
  list.AddForward({.name = "sums of the loss",
                   .sent = 2 * kSums * batch.tokens() * kFp32ElementBytes * part,
                   .collectives = 2 * kSums,
                   .kernels = 0});
  const double sent = batch.tokens() * sizes.dim * list.element() * part;
  list.AddInput(
      {.name = "sum of gradients over ranks", .sent = 2 * sent, .collectives = 2, .kernels = 0});
  return take();
}

StagePart MegatronPredictorPart(const ModelShape& shape, const Microbatch& batch) {
  StagePart block = MegatronLayerPart(shape, shape.layers - 1, batch);
  KernelList list(batch);
  list.Append(block.work);
  list.Append(PredictorWork(shape, batch));
  block.work = list.Take();
  block.kept = MegatronKeptByPredictor(shape, batch, kKernels);
  return block;
}

RankOverhead MegatronLocalOverhead(const ModelShape& shape, const Microbatch& batch,
                                   const RankPlace& place) {
  return MegatronOverhead(shape, batch, place, kKernels);
}

}  // namespace

Implementation MegatronImplementation() {
  // Fitted to runs of vTrain's authors on A100, except for links: NCCL's times there have slopes of
  // 199 to 231 GB/s and 70 us for an all-reduce of few bytes (docs/measured.md). Between nodes,
  // rings of several GPUs share the ports of a node: sums of gradients at BigScience and DLPerf get
  // half of their rate at most, and vTrain's rows do not depend on it.
  Speeds speeds{.matmul = {0.78, 0.78, 0.78}, .memory = 0.65, .link = 0.75, .network = 0.5};
  speeds.collective_latency = 35e-6;
  speeds.device_launch = 28e-6;
  speeds.host_launch = 64e-6;
  return {.name = "megatron",
          .source = "Megatron-LM's local layers: megatron/model/transformer.py of v3.0",
          .speeds = speeds,
          // Unscaling, the norm of gradients, AdamW, and the copies to and from masters.
          .bytes_per_step = 32,
          .fp32_gradients = true,
          .transfers = Transfers::kBlocking,
          .scatters_messages = true,
          .sums_tied_gradients = true,
          .copies_heads = true,
          .layer = &MegatronLayerPart,
          .predictor = &MegatronPredictorPart,
          .embedding = &MegatronEmbeddingPart,
          .final_norm = &MegatronFinalNormPart,
          .logits = &MegatronLogitsPart,
          .states = &MegatronStates,
          .parameters = &MegatronParameters,
          .overhead = &MegatronLocalOverhead};
}

}  // namespace penstock
