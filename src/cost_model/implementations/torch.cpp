#include "cost_model/implementations/implementations.h"
#include "cost_model/implementations/kernel_list.h"
#include "cost_model/kept_tensors.h"
#include "cost_model/rank_sizes.h"
#include "cost_model/stage_layers.h"

namespace penstock {
namespace {

constexpr double kFp32 = kFp32ElementBytes;

// Whether a compiler fuses the operators of a layer.
enum class TorchMode { kEager, kCompiled };

// Adds the parts of a layer of torchtitan's models: matmuls and fused attention are kernels of
// libraries in both modes, and all else is pointwise.
class TorchLayer {
 public:
  TorchLayer(const ModelShape& shape, const Microbatch& batch, TorchMode mode)
      : shape_(shape),
        batch_(batch),
        mode_(mode),
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
    if (shape_.has_experts(layer)) {
      list_.Append(FeedForwardWork(shape_, layer, batch_));
      return;
    }
    AddNorm(hidden_states_);
    AddExchange();
    const double inner = tokens_ * sizes_.hidden;
    const bool is_gpt = shape_.architecture == Architecture::kGpt2;
    list_.Within(kFeedForward);
    list_.Linear("w1", tokens_, sizes_.dim, sizes_.hidden);
    if (!is_gpt && shape_.gated) {
      list_.Linear("w3", tokens_, sizes_.dim, sizes_.hidden);
      AddSumOfGradients(1);
    }
    list_.Within(kFeedForward | kActivation);
    if (is_gpt || !shape_.gated) {
      list_.Forward("activation", inner, 2 * e_);
      list_.Input("activation", inner, 3 * e_);
    } else {
      AddGate(inner);
    }
    if (is_gpt) list_.Weight("bias of w1", inner, e_);
    list_.Within(kFeedForward);
    list_.Linear("w2", tokens_, sizes_.hidden, sizes_.dim);
    list_.Within(0);
    AddResidual();
  }
  void AddMamba() { list_.Append(MambaWork(shape_, batch_)); }
  Work Take() { return list_.Take(); }

 private:
  bool is_compiled() const { return mode_ == TorchMode::kCompiled; }

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
    if (batch_.profile.attention == AttentionKernel::kUnfused) {
      list_.UnfusedAttention(sizes_.heads, sizes_.head_dim);
    } else {
      list_.FlashAttention(sizes_.heads, sizes_.kv_heads, sizes_.head_dim, shape_.window_of(layer));
    }
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

  // DTensor gathers the input of the first matmuls and scatters the sum of the last, and waits for
  // each. The gathered input is kept, so that W does not gather it again.
  void AddExchange() {
    const auto ranks = static_cast<double>(batch_.tensor);
    if (batch_.tensor == 1) return;
    const double sent = 2 * tokens_ * sizes_.dim * e_ * (ranks - 1) / ranks;
    list_.AddForward(
        {.name = "exchange of hidden states", .sent = sent, .collectives = 2, .kernels = 0});
    list_.AddInput(
        {.name = "exchange of hidden states", .sent = sent, .collectives = 2, .kernels = 0});
  }

  const ModelShape& shape_;
  const Microbatch& batch_;
  TorchMode mode_;
  RankSizes sizes_;
  KernelList list_;
  double e_;  // bytes of an element
  double tokens_;
  double hidden_states_;  // elements of a rank
};

void AppendKept(const KeptTensors& from, KeptTensors& to) {
  to.insert(to.end(), from.begin(), from.end());
}

// Autograd keeps what the graph compiler does with `exact: true`, which captures its graphs.
KeptTensors TorchKeptByLayer(const ModelShape& shape, std::int64_t layer, const Microbatch& batch) {
  using enum LayerKind;
  KeptTensors kept;
  const LayerKind kind = shape.kind(layer);
  if (kind == kBlock || kind == kAttention) AppendKept(KeptByAttention(shape, batch), kept);
  if (kind == kMamba) AppendKept(KeptByMamba(shape, batch), kept);
  if (kind == kBlock || kind == kFeedForward || kind == kExperts) {
    AppendKept(KeptByFeedForward(shape, layer, batch), kept);
  }
  return kept;
}

template <TorchMode mode>
StagePart TorchLayerPart(const ModelShape& shape, std::int64_t layer, const Microbatch& batch) {
  using enum LayerKind;
  TorchLayer list(shape, batch, mode);
  const LayerKind kind = shape.kind(layer);
  if (kind == kBlock || kind == kAttention) list.AddAttention(layer);
  if (kind == kMamba) list.AddMamba();
  if (kind == kBlock || kind == kFeedForward || kind == kExperts) list.AddFeedForward(layer);
  return {.work = list.Take(), .kept = TorchKeptByLayer(shape, layer, batch), .is_layer = true};
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
  const bool is_fused = mode == TorchMode::kCompiled || batch.profile.fused_loss;
  const RankSizes sizes(shape, batch);
  KernelList list(batch);
  const double logits = batch.tokens() * sizes.vocabulary, e = list.element();
  list.Linear("head", batch.tokens(), sizes.dim, sizes.vocabulary);
  list.Forward("cross-entropy", logits, is_fused ? 2 * e : e + 3 * kFp32, is_fused ? 2 : 3);
  list.Input("cross-entropy", logits, is_fused ? 2 * e : e + 5 * kFp32, is_fused ? 1 : 3);
  if (batch.tensor > 1) {
    const auto ranks = static_cast<double>(batch.tensor);
    const double sent = batch.tokens() * sizes.dim * e * (ranks - 1) / ranks;
    list.AddForward({.name = "gather", .sent = sent, .collectives = 1, .kernels = 0});
    list.AddInput({.name = "scatter", .sent = sent, .collectives = 1, .kernels = 0});
  }
  return {.work = list.Take(), .kept = KeptByLogits(shape, batch)};
}

// Weights, masters and gradients of FSDP2 are fp32 and divided; compute reads copies in bf16, and
// gradients are summed in fp32 (MixedPrecisionPolicy in torchtitan).
StateFormat TorchStates(const Microbatch& batch) { return AdamWFormat(batch.element_bytes()); }

template <TorchMode mode>
Implementation TorchOf(std::string_view name, std::string_view source) {
  // Not fitted: what matmuls of cuBLAS and NCCL reach in general, and a launch by ATen's dispatcher
  // and autograd.
  Speeds speeds{.matmul = {0.65, 0.65, 0.65}};
  speeds.device_launch = 1e-6;
  speeds.host_launch = 8e-6;
  return {.name = name,
          .source = source,
          .speeds = speeds,
          // The norm of gradients, their scaling, and fused AdamW in fp32.
          .bytes_per_step = 40,
          .reduced_bytes = kFp32,
          .layer = &TorchLayerPart<mode>,
          .predictor = &TorchPredictorPart<mode>,
          .embedding = &TorchEmbeddingPart,
          .final_norm = &TorchFinalNormPart,
          .logits = &TorchLogitsPart<mode>,
          .states = &TorchStates};
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
