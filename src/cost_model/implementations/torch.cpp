#include <cmath>

#include "cost_model/implementations/implementations.h"
#include "cost_model/implementations/torch_constants.h"
#include "cost_model/implementations/torch_kept.h"
#include "cost_model/implementations/torch_list.h"
#include "cost_model/kept_tensors.h"
#include "cost_model/rank_sizes.h"
#include "cost_model/stage_layers.h"

namespace penstock {
namespace {

constexpr double kFp32 = kFp32ElementBytes;

// Adds the parts of a layer of torchtitan's models: matmuls and fused attention are kernels of
// libraries in both modes, and all else is pointwise.
class TorchLayer {
 public:
  TorchLayer(const ModelShape& shape, const Microbatch& batch, TorchMode mode)
      : shape_(shape),
        batch_(batch),
        sizes_(shape, batch),
        list_(batch, mode),
        e_(list_.element()),
        tokens_(batch.tokens()),
        hidden_states_(batch.tokens_of_rank() * sizes_.dim) {}

  void AddAttention(std::int64_t layer) {
    if (shape_.has_delta(layer)) {
      list_.Append(DeltaWork(shape_, batch_));
      return;
    }
    if (shape_.latent) {
      list_.Append(AttentionWork(shape_, layer, batch_));
      return;
    }
    AddNorm(hidden_states_);
    const double queries = sizes_.heads * sizes_.head_dim;
    const double keys = sizes_.kv_heads * sizes_.head_dim;
    AddExchange();
    if (shape_.architecture == Architecture::kGpt2) {
      list_.Linear("qkv", tokens_, sizes_.dim, queries + 2 * keys);
      list_.Weight("bias of qkv", tokens_ * (queries + 2 * keys), e_);
    } else {
      list_.Linear("wq", tokens_, sizes_.dim, queries);
      list_.Linear("wk", tokens_, sizes_.dim, keys);
      list_.Linear("wv", tokens_, sizes_.dim, keys);
      AddSumOfGradients(2);
      if (shape_.qk_norm) AddNorm(tokens_ * (queries + keys), 2);
      AddRotaryPositions(tokens_ * (queries + keys));
    }
    list_.ExchangeContext(tokens_ * queries, tokens_ * 2 * keys);
    AddCoreAttention(layer);
    list_.Linear("wo", tokens_, queries, sizes_.dim);
    AddResidual();
  }

  void AddFeedForward(std::int64_t layer) {
    AddNorm(hidden_states_);
    AddExchange();
    if (shape_.has_experts(layer)) {
      AddExperts();
    } else {
      AddDense(sizes_.hidden, kFeedForward);
    }
    list_.Within(0);
    AddResidual();
  }
  void AddMamba() { list_.Append(MambaWork(shape_, batch_)); }
  Work Take() { return list_.Take(); }

 private:
  bool is_compiled() const { return list_.is_compiled(); }
  bool is_gated() const { return shape_.gated && shape_.architecture != Architecture::kGpt2; }

  void AddDense(double hidden, int modules) {
    const double inner = tokens_ * hidden;
    list_.Within(modules);
    list_.Linear("w1", tokens_, sizes_.dim, hidden);
    if (is_gated()) {
      list_.Linear("w3", tokens_, sizes_.dim, hidden);
      AddSumOfGradients(1);
    }
    list_.Within(modules | kActivation);
    AddActivation(inner);
    if (shape_.architecture == Architecture::kGpt2) list_.Weight("bias of w1", inner, e_);
    list_.Within(modules);
    list_.Linear("w2", tokens_, hidden, sizes_.dim);
  }

  void AddActivation(double inner) {
    if (is_gated()) {
      AddGate(inner);
    } else {
      list_.Forward("activation", inner, 2 * e_);
      list_.Input("activation", inner, 3 * e_);
    }
  }

  // models/moe: the router chooses experts, the host waits for the number of rows, rows are sent,
  // ordered by expert and padded, and come back in the reverse order.
  void AddExperts() {
    const ExpertShape& experts = *shape_.experts;
    const auto count = static_cast<double>(experts.experts);
    const auto ranks = static_cast<double>(batch_.expert);
    const auto division = static_cast<double>(batch_.expert_division());
    const double own = batch_.tokens_of_rank();
    const double rows = batch_.expert_tokens() * static_cast<double>(experts.top_k);
    const auto latent = static_cast<double>(experts.latent);
    const double width = latent > 0 ? latent : sizes_.dim;
    const double hidden = static_cast<double>(experts.hidden) / division;
    list_.Within(kExpertsModule);
    list_.PlainLinear("router", own, sizes_.dim, count);
    constexpr double kRouterPasses = 4;  // scores, their softmax, the choice and the histogram
    list_.Forward("choice of experts", own * count, kRouterPasses * kFp32, kRouterKernels);
    list_.Input("choice of experts", own * count, kRouterPasses * kFp32, kRouterKernels);
    if (latent > 0) list_.Linear("w_down", own, sizes_.dim, width);
    AddRoute(batch_.expert_tokens() / division, width);
    AddRowPasses(rows * width);
    list_.GroupedLinear("experts' w1", rows, width, hidden, count / ranks, hidden);
    if (is_gated()) list_.GroupedLinear("experts' w3", rows, width, hidden, count / ranks, hidden);
    list_.Within(kExpertsModule | kActivation);
    AddActivation(rows * hidden);
    list_.Within(kExpertsModule);
    list_.GroupedLinear("experts' w2", rows, hidden, width, count / ranks, hidden);
    AddRoute(batch_.expert_tokens() / division, width);
    if (latent > 0) list_.Linear("w_up", own, width, sizes_.dim);
    if (experts.shared > 0) {
      AddDense(RankSizes::Share(experts.shared_width(), batch_), kExpertsModule | kSharedExperts);
    }
    if (batch_.expert > 1) list_.Host(torch_constants::kHostExperts);
  }

  // Tokens go to the ranks of their experts, or back: once per expert, once per rank, or all of
  // them to every rank.
  void AddRoute(double tokens_of_expert_rank, double width) {
    const auto ranks = static_cast<double>(batch_.expert);
    const auto top_k = static_cast<double>(shape_.experts->top_k);
    if (batch_.expert == 1) return;
    const double bytes = tokens_of_expert_rank * width * e_ * (ranks - 1);
    switch (batch_.profile.dispatcher) {
      case Dispatcher::kAllGather:
        list_.Route(0, bytes);
        return;
      case Dispatcher::kAllToAll:
        list_.Route(bytes * top_k / ranks, 0);
        return;
      case Dispatcher::kDeepEp:
      case Dispatcher::kHybridEp:
        break;
    }
    list_.Route(bytes * (1 - std::pow(1 - 1 / ranks, top_k)), 0);  // each rank once
  }

  // Permutation to the order of experts and back, F a third of the passes of both directions.
  void AddRowPasses(double elements) {
    double passes = is_compiled() ? torch_constants::kRowPasses : torch_constants::kRowPassesEager;
    const Dispatcher dispatcher = batch_.profile.dispatcher;
    const bool sends_copies =
        dispatcher == Dispatcher::kAllToAll || dispatcher == Dispatcher::kAllGather;
    if (batch_.expert > 1 && sends_copies) passes += transformer_engine::kAllToAllPasses;
    list_.Forward("rows of experts", elements, passes / 3 * e_, kRowKernels);
    list_.Input("rows of experts", elements, 2 * passes / 3 * e_, kRowKernels);
  }

  // RMSNorm of a decoder runs in fp32 (rms_norm_composite in ATen/native/layer_norm.cpp): a copy,
  // its square, the mean, the root, the product, the cast and the weight; LayerNorm is one kernel.
  // Inductor makes one kernel of each forward, and one of its backward without the sum over rows.
  void AddNorm(double elements, double norms = 1) {
    list_.Within(kNorm);
    if (is_compiled() || shape_.architecture == Architecture::kGpt2) {
      list_.Forward("norm", elements, 2 * e_, norms);
      list_.Input("norm", elements, 3 * e_, norms);
      list_.Weight("norm", elements, 2 * e_, norms);
    } else {
      constexpr double kForwardKernels = 8, kInputKernels = 12, kWeightKernels = 2;
      list_.Forward("norm", elements, 4 * e_ + 7 * kFp32, norms * kForwardKernels);
      list_.Input("norm", elements, 4 * e_ + 13 * kFp32, norms * kInputKernels);
      list_.Weight("norm", elements, 4 * e_, norms * kWeightKernels);
    }
    list_.Within(0);
  }

  // Queries and keys in fp32 as complex numbers (apply_rotary_emb in torchtitan): each has a copy,
  // a product and a cast.
  void AddRotaryPositions(double elements) {
    const double bytes = is_compiled() ? 2 * e_ : 2 * e_ + 4 * kFp32;
    const double kernels = is_compiled() ? 2 : 6;
    list_.Forward("rotary positions", elements, bytes, kernels);
    list_.Input("rotary positions", elements, bytes, kernels);
  }

  void AddCoreAttention(std::int64_t layer) {
    list_.Attention(sizes_.heads, sizes_.kv_heads, sizes_.head_dim, shape_.window_of(layer));
    const double queries = tokens_ * sizes_.heads * sizes_.head_dim;
    list_.Forward("order of heads", queries, 2 * e_);
    list_.Input("order of heads", queries, 2 * e_);
  }

  // silu(w1 x) * w3 x.
  void AddGate(double inner) {
    if (is_compiled()) {
      list_.Forward("silu and product", inner, 3 * e_);
      list_.Input("silu and product", inner, 5 * e_);
      return;
    }
    list_.Forward("silu", inner, 2 * e_);
    list_.Forward("product", inner, 3 * e_);
    list_.Input("product", inner, 6 * e_, 2);
    list_.Input("silu", inner, 3 * e_);
  }

  // Autograd adds the gradients of an input that several matmuls read.
  void AddSumOfGradients(double sums) {
    if (is_compiled()) {
      list_.Input("sum of gradients", hidden_states_, (sums + 2) * e_);
    } else {
      list_.Input("sums of gradients", hidden_states_, 3 * e_ * sums, sums);
    }
  }

  // Dropout, and the addition to the residual stream. Inductor makes them part of the next norm.
  void AddResidual() {
    const bool dropout = batch_.profile.dropout;
    if (is_compiled()) {
      list_.Forward("addition", hidden_states_, 2 * e_ + (dropout ? 1 : 0), 0);
      list_.Input("addition", hidden_states_, e_ + (dropout ? 1 : 0), 0);
    } else {
      list_.Forward("addition", hidden_states_, 3 * e_);
      list_.Input("addition", hidden_states_, 3 * e_);
      if (dropout) {
        list_.Forward("dropout", hidden_states_, 2 * e_ + 1);
        list_.Input("dropout", hidden_states_, 2 * e_ + 1);
      }
    }
    if (shape_.architecture == Architecture::kGpt2) list_.Weight("bias", hidden_states_, e_);
  }

  void AddExchange() {
    const auto ranks = static_cast<double>(batch_.tensor);
    list_.ExchangeTensor(tokens_ * sizes_.dim * e_ * (ranks - 1) / ranks);
  }

  // Launches per layer with experts: of the router, and of the order of rows. As assumed.
  static constexpr double kRouterKernels = 12, kRowKernels = 10;

  const ModelShape& shape_;
  const Microbatch& batch_;
  RankSizes sizes_;
  TorchList list_;
  double e_;  // bytes of an element
  double tokens_;
  double hidden_states_;  // elements of a rank
};

template <TorchMode mode>
StagePart TorchLayerPart(const ModelShape& shape, std::int64_t layer, const Microbatch& batch) {
  using enum LayerKind;
  TorchLayer list(shape, batch, mode);
  const LayerKind kind = shape.kind(layer);
  if (kind == kBlock || kind == kAttention) list.AddAttention(layer);
  if (kind == kMamba) list.AddMamba();
  if (kind == kBlock || kind == kFeedForward || kind == kExperts) list.AddFeedForward(layer);
  return {.work = list.Take(),
          .kept = TorchKeptByLayer(shape, layer, batch, mode),
          .is_layer = true,
          .transient = TorchLayerTransient(shape, layer, batch)};
}

template <TorchMode mode>
StagePart TorchPredictorPart(const ModelShape& shape, const Microbatch& batch) {
  StagePart block = TorchLayerPart<mode>(shape, shape.layers - 1, batch);
  KernelList list(batch);
  list.Append(block.work);
  list.Append(PredictorWork(shape, batch));
  block.work = list.Take();
  return block;
}

StagePart TorchEmbeddingPart(const ModelShape& shape, const Microbatch& batch) {
  KernelList list(batch);
  const double e = list.element();
  const double elements = batch.tokens_of_rank() * static_cast<double>(shape.dim);
  list.Forward("embedding", elements, 2 * e);
  list.Weight("embedding", elements, 2 * e, 2);
  if (shape.positions > 0) {
    list.Forward("positions", elements, 2 * e, 2);
    list.Weight("positions", elements, e);
  }
  return {.work = list.Take(), .kept = KeptByEmbedding(batch)};
}

StagePart TorchFinalNormPart(const ModelShape& shape, const Microbatch& batch) {
  KernelList list(batch);
  const double e = list.element();
  const double elements = batch.tokens_of_rank() * static_cast<double>(shape.dim);
  list.Forward("norm", elements, 2 * e);
  list.Input("norm", elements, 3 * e);
  list.Weight("norm", elements, 2 * e);
  return {.work = list.Take(), .kept = KeptByFinalNorm(shape, batch)};
}

// The loss of torchtitan: a copy of the logits in fp32, log-softmax, the choice of a token's own,
// and all of their backwards. Compiled, the copy is part of the other kernels.
template <TorchMode mode>
StagePart TorchLogitsPart(const ModelShape& shape, const Microbatch& batch) {
  const bool is_fused = HasCompiledLoss(batch.profile, mode);
  const RankSizes sizes(shape, batch);
  TorchList list(batch, mode);
  const double logits = batch.tokens() * sizes.vocabulary, e = list.element();
  list.PlainLinear("head", batch.tokens(), sizes.dim, sizes.vocabulary);
  list.Forward("cross-entropy", logits, is_fused ? 2 * e : e + 3 * kFp32, is_fused ? 2 : 3);
  list.Input("cross-entropy", logits, is_fused ? 2 * e : e + 5 * kFp32, is_fused ? 1 : 3);
  Work work = list.Take();
  if (batch.tensor > 1) {
    const auto ranks = static_cast<double>(batch.tensor);
    const double sent = batch.tokens() * sizes.dim * e * (ranks - 1) / ranks;
    work.forward.push_back({.name = "gather", .sent = sent, .collectives = 1, .kernels = 0});
    work.backward_input.push_back(
        {.name = "scatter", .sent = sent, .collectives = 1, .kernels = 0});
  }
  return {.work = std::move(work),
          .kept = TorchKeptByLogits(shape, batch, mode),
          .transient = TorchLossTransient(shape, batch, mode)};
}

// Weights, masters and gradients of FSDP2 are fp32 and divided; compute reads copies in bf16, and
// gradients are summed in fp32 (MixedPrecisionPolicy in torchtitan).
StateFormat TorchStates(const Microbatch& batch) { return AdamWFormat(batch.element_bytes()); }

template <TorchMode mode>
Implementation TorchOf(std::string_view name, std::string_view source) {
  Speeds speeds{.matmul = {torch_constants::kMatmulBf16, torch_constants::kMatmulBf16,
                           torch_constants::kMatmulBf16}};
  if (mode == TorchMode::kCompiled) {
    speeds.matmul[static_cast<std::size_t>(Precision::kFp8)] = torch_constants::kMatmulFp8;
  }
  speeds.matmul_start = torch_constants::kMatmulStart;
  speeds.device_launch = torch_constants::kDeviceLaunch;
  speeds.host_launch = torch_constants::kHostLaunch;
  speeds.hidden_gradients = 1 - torch_constants::kShardsExposed;
  speeds.copies_link = transformer_engine::kAllToAllLink;
  speeds.copies_network = transformer_engine::kAllToAllNetwork;
  return {.name = name,
          .source = source,
          .quantizes = mode == TorchMode::kCompiled,  // torchao's casts are fused by Inductor
          .speeds = speeds,
          // The norm of gradients, their scaling, and fused AdamW in fp32.
          .bytes_per_step = 40,
          .quantized_gather_bytes = 1,  // enable_fsdp_float8_all_gather
          .shards_exposed = torch_constants::kShardsExposed,
          .is_fsdp = true,
          .recomputes_by_op = true,
          .cuts_matmuls = mode == TorchMode::kCompiled,
          .layer = &TorchLayerPart<mode>,
          .predictor = &TorchPredictorPart<mode>,
          .embedding = &TorchEmbeddingPart,
          .final_norm = &TorchFinalNormPart,
          .logits = &TorchLogitsPart<mode>,
          .states = &TorchStates,
          .overhead = &TorchOverhead};
}

}  // namespace

Implementation TorchImplementation() {
  return TorchOf<TorchMode::kEager>(
      "torch", "torchtitan's models/llama3/model.py and ATen's kernels, operator by operator");
}

Implementation TorchCompileImplementation() {
  return TorchOf<TorchMode::kCompiled>(
      "torch-compile", "the same model with torch.compile of each layer, as torchtitan does");
}

}  // namespace penstock
