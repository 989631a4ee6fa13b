#include "cost_model/implementations/torch_kept.h"

#include <algorithm>

#include "cost_model/rank_sizes.h"
#include "cost_model/stage_layers.h"

namespace penstock {
namespace {

class TorchKeptList {
 public:
  TorchKeptList(const ModelShape& shape, const Microbatch& batch, TorchMode mode)
      : shape_(shape),
        batch_(batch),
        is_compiled_(mode == TorchMode::kCompiled),
        sizes_(shape, batch),
        element_(batch.element_bytes()),
        hidden_(batch.tokens_of_rank() * sizes_.dim) {}

  void Attention() {
    const double queries = batch_.tokens() * sizes_.heads * sizes_.head_dim;
    const double keys = batch_.tokens() * sizes_.kv_heads * sizes_.head_dim;
    Add("residual stream", Kept::kUntilInput, hidden_);
    Norm();
    Add("projected queries and values", Kept::kUntilInput, queries + keys);
    Again("projected keys", Kept::kUntilInput, keys);
    if (shape_.qk_norm) Again("normalized queries and keys", Kept::kUntilInput, queries + keys);
    AddBytes("attention: log-sum-exp", Kept::kUntilInput,
             kFp32ElementBytes * batch_.tokens() * sizes_.heads, kCoreAttention);
    Add("attention: output", Kept::kUntilWeight, queries);
    Add("gradients of queries, keys and values", Kept::kFromInput, queries + 2 * keys);
    Add("gradient of the residual stream", Kept::kFromInput, hidden_);
  }

  // Per-op recomputation keeps the output of the last matmul of the block or, with `tensor`, of the
  // reduce-scatter after attention in place of this stream. Uncompiled, it keeps one more tensor of
  // hidden states, by measured peaks (5 GiB for 32 layers of 4096 x 16384).
  void FeedForward() {
    Add("residual stream after attention", Kept::kUntilInput, hidden_);
    if (!is_compiled_) Add("output of the block", Kept::kUntilInput, hidden_);
    Norm();
    const bool is_gated = shape_.gated && shape_.architecture == Architecture::kDecoder;
    const double inner = batch_.tokens() * sizes_.hidden;
    Add("w1: output", Kept::kUntilInput, inner, kFeedForward);
    if (is_gated) Again("w3: output", Kept::kUntilInput, inner, kFeedForward);
    if (!is_compiled_) {
      if (is_gated) Again("silu", Kept::kUntilInput, inner, kFeedForward | kActivation);
      Again("w2: input", Kept::kUntilWeight, inner, kFeedForward | kActivation);
    }
    Add("gradients of w1 and w3", Kept::kFromInput, (is_gated ? 2 : 1) * inner);
    Add("gradient of the residual stream", Kept::kFromInput, hidden_);
  }

  KeptTensors Take() { return std::move(tensors_); }

 private:
  void AddBytes(std::string_view name, Kept kept, double bytes, int modules = 0) {
    tensors_.push_back({name, kept, bytes, modules});
  }
  void Add(std::string_view name, Kept kept, double elements, int modules = 0) {
    AddBytes(name, kept, elements * element_, modules);
  }
  void Again(std::string_view name, Kept kept, double elements, int modules = 0) {
    Add(name, kept, elements, modules | kNotKeptByOp);
  }
  // RMSNorm operator by operator keeps its input and its normalized input in fp32; one kernel
  // computes them again. The matmuls read the output of all ranks' tokens.
  void Norm() {
    if (!is_compiled_ && shape_.architecture != Architecture::kGpt2) {
      AddBytes("norm: input and normalized input in fp32", Kept::kUntilInput,
               2 * kFp32ElementBytes * hidden_, kNorm | kNotKeptByOp);
    }
    AddBytes("norm: 1 / deviation", Kept::kUntilInput, kFp32ElementBytes * batch_.tokens_of_rank(),
             kNotKeptByOp);
    Again("norm: output", Kept::kUntilWeight, batch_.tokens() * sizes_.dim, kNorm);
  }

  const ModelShape& shape_;
  const Microbatch& batch_;
  bool is_compiled_;
  RankSizes sizes_;
  double element_;
  double hidden_;  // elements of a rank
  KeptTensors tensors_;
};

// What the graph compiler keeps with `exact: true`, which captures autograd's graphs. What norms
// and activations keep is computed again per op.
void AppendCaptured(KeptTensors captured, KeptTensors& kept) {
  for (KeptTensor& tensor : captured) {
    const bool is_pointwise =
        tensor.name.starts_with("norm") || (tensor.modules & (kNorm | kActivation)) != 0;
    if (is_pointwise) tensor.modules |= kNotKeptByOp;
    kept.push_back(tensor);
  }
}

double TorchLogitElements(const ModelShape& shape, const Microbatch& batch) {
  return batch.tokens() * RankSizes(shape, batch).vocabulary;
}

}  // namespace

KeptTensors TorchKeptByLayer(const ModelShape& shape, std::int64_t layer, const Microbatch& batch,
                             TorchMode mode) {
  using enum LayerKind;
  const LayerKind kind = shape.kind(layer);
  KeptTensors kept;
  if (kind == kMamba) AppendCaptured(KeptByMamba(shape, batch), kept);
  TorchKeptList list(shape, batch, mode);
  const bool attends = kind == kBlock || kind == kAttention;
  const bool is_plain = !shape.latent && !shape.has_delta(layer);
  if (attends && is_plain) list.Attention();
  if (attends && shape.has_delta(layer)) AppendCaptured(KeptByDelta(shape, batch), kept);
  if (attends && !is_plain && !shape.has_delta(layer)) {
    AppendCaptured(KeptByAttention(shape, batch), kept);
  }
  if (kind == kBlock || kind == kFeedForward || kind == kExperts) {
    if (shape.has_experts(layer)) {
      AppendCaptured(KeptByFeedForward(shape, layer, batch), kept);
    } else {
      list.FeedForward();
    }
  }
  const KeptTensors own = list.Take();
  kept.insert(kept.end(), own.begin(), own.end());
  return kept;
}

double TorchLayerTransient(const ModelShape& shape, std::int64_t layer, const Microbatch& batch) {
  const double hidden = 3 * batch.tokens_of_rank() * static_cast<double>(shape.dim);
  const bool is_dense = shape.kind(layer) == LayerKind::kBlock && !shape.has_experts(layer);
  const double inner = is_dense ? batch.tokens() * RankSizes(shape, batch).hidden : 0;
  // A row of the hidden size for each token of all ranks, whose sum is then scattered.
  const double gathered =
      batch.tensor > 1 ? 2 * batch.tokens() * static_cast<double>(shape.dim) : 0;
  return batch.element_bytes() * (hidden + 2 * inner + gathered);
}

// Compiled since 2025 (components/loss.py).
bool HasCompiledLoss(const Profile& profile, TorchMode mode) {
  const bool is_new = profile.release.empty() || profile.release >= "2025-02";
  return profile.fused_loss || (mode == TorchMode::kCompiled && is_new);
}

KeptTensors TorchKeptByLogits(const ModelShape& shape, const Microbatch& batch, TorchMode mode) {
  const double logits = TorchLogitElements(shape, batch);
  const double kept =
      HasCompiledLoss(batch.profile, mode) ? batch.element_bytes() : kFp32ElementBytes;
  KeptTensors tensors = {{"loss: logits or their softmax", Kept::kUntilInput, kept * logits},
                         {"gradient of logits", Kept::kFromInput, batch.element_bytes() * logits}};
  tensors.push_back({"head: input", Kept::kUntilWeight,
                     batch.element_bytes() * batch.tokens() * static_cast<double>(shape.dim)});
  return tensors;
}

// Compiled, the gradient in the logits' format. Otherwise the logits, their copy in fp32 and the
// gradient in fp32: the first two are free when the third is allocated, but the allocator, whose
// reserved memory torchtitan logs, has no block for it.
double TorchLossTransient(const ModelShape& shape, const Microbatch& batch, TorchMode mode) {
  const double logits = TorchLogitElements(shape, batch), e = batch.element_bytes();
  return logits * (HasCompiledLoss(batch.profile, mode) ? e : e + 2 * kFp32ElementBytes);
}

// cuBLAS has a workspace for each thread that computes (megatron_overhead.cpp). A stage of torch's
// pipelines keeps the outputs of microbatches in flight, and has a buffer for the gradient of each
// (stage.py: fwd_cache, grad_recv_info), of which there are at least as many as ranks.
RankOverhead TorchOverhead(const ModelShape& shape, const Microbatch& batch,
                           const RankPlace& place) {
  constexpr double kMiB = 1 << 20;
  const bool is_ampere = batch.profile.generation == Generation::kAmpere;
  RankOverhead overhead;
  overhead.workspace = 2 * (is_ampere ? 8.125 * kMiB : 32 * kMiB);
  if (place.ranks > 1) {
    overhead.messages = 2 * place.ranks * place.chunks * HiddenBytes(shape, batch);
  }
  return overhead;
}

}  // namespace penstock
