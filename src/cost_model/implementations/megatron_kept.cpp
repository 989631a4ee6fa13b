#include "cost_model/implementations/megatron_kept.h"

#include <algorithm>
#include <utility>

#include "cost_model/layer_work.h"
#include "cost_model/rank_sizes.h"

namespace penstock {
namespace {

constexpr double kMaskBytes = 1;  // of an element of a dropout mask

class MegatronKeptList {
 public:
  MegatronKeptList(const ModelShape& shape, const Microbatch& batch, MegatronKernels kernels)
      : shape_(shape),
        batch_(batch),
        sizes_(shape, batch),
        kernels_(kernels),
        element_(batch.element_bytes()),
        linear_(LinearBytes(batch.precision)) {}

  void Attention() {
    Norm(false, kAttentionInput);
    Masked(shape_.latent ? LatentCore() : PlainCore());
  }
  // As KeptByDelta has it (kept_tensors.h), with the input of linear layers as they read it.
  void Delta() {
    const DeltaShape& delta = *shape_.delta;
    const double keys = tokens() * RankSizes::Share(delta.keys(), batch_);
    const double values = tokens() * RankSizes::Share(delta.values(), batch_);
    Norm(false, 0);
    Add("delta: projected and convolved input", Kept::kUntilInput, 4 * keys + 3 * values);
    Add("delta: output of the rule", Kept::kUntilInput, values);
    Add("gradient of the projected input", Kept::kFromInput, 2 * keys + 2 * values);
    Masked(values);
  }
  void FeedForward(std::int64_t layer) {
    const bool has_experts = shape_.has_experts(layer);
    Norm(has_experts, kFeedForwardInput);
    if (has_experts) {
      Experts();
    } else {
      Dense();
    }
    Mask();
  }
  // mamba_split_conv1d_scan_combined keeps its input and its output before the gate; the output in
  // another order of dimensions and the norm's are copies (core/ssm/mamba_mixer.py).
  void Mamba() {
    const MambaShape& mamba = *shape_.mamba;
    const double tensor = Real(batch_.tensor), inner = Real(mamba.inner()) / tensor;
    const double states = Real(mamba.groups * mamba.state) / tensor;
    const double projected = 2 * inner + 2 * states + Real(mamba.heads) / tensor;
    Norm(false, 0);
    Add("mamba: projected input", Kept::kUntilInput, tokens() * projected);
    Add("mamba: output of the scan, twice", Kept::kUntilInput, 2 * tokens() * inner);
    Add("mamba: normalized output", Kept::kUntilWeight, tokens() * inner);
    Add("gradient of the projected input", Kept::kFromInput, tokens() * projected);
    Mask();
  }
  KeptTensors Take() { return std::move(tensors_); }

 private:
  static double Real(std::int64_t size) { return static_cast<double>(size); }
  double tokens() const { return batch_.tokens(); }
  double tokens_of_rank() const { return batch_.tokens_of_rank(); }
  bool has_dropout() const { return batch_.profile.dropout; }

  void AddBytes(std::string_view name, Kept kept, double bytes, int modules = 0) {
    tensors_.push_back({name, kept, bytes, modules});
  }
  void Add(std::string_view name, Kept kept, double elements, int modules = 0) {
    AddBytes(name, kept, elements * element_, modules);
  }
  // Inputs of linear layers are kept in the format in which they are read.
  void AddLinearInput(std::string_view name, double elements, int modules = 0) {
    AddBytes(name, Kept::kUntilWeight, elements * linear_, modules);
  }

  // LayerNormLinear keeps input, output, mean and deviation (module/layernorm_linear.py). The
  // norm of experts is a module of its own, whose output the router reads in full precision.
  void Norm(bool of_experts, int modules_of_input) {
    const double elements = tokens_of_rank() * sizes_.dim;
    Add("norm: input", Kept::kUntilInput, elements, modules_of_input);
    AddBytes("norm: output", Kept::kUntilWeight, elements * (of_experts ? element_ : linear_),
             kNorm);
    AddBytes("norm: mean and 1 / deviation", Kept::kUntilInput,
             2 * kFp32ElementBytes * tokens_of_rank());
  }
  // After each part of a block, before the addition to the residual stream.
  void Mask() {
    if (shape_.norms_outputs) {
      Add("norm: output of the part", Kept::kUntilInput, tokens_of_rank() * sizes_.dim);
    }
    if (!has_dropout()) return;
    AddBytes("dropout: mask", Kept::kUntilInput, kMaskBytes * tokens_of_rank() * sizes_.dim);
  }
  // The projection of the attention's output. Its gradient is the residual stream's.
  void Masked(double output) {
    AddLinearInput("attention: output", output, kAttentionOutput);
    Add("gradient of the residual stream", Kept::kFromInput, tokens_of_rank() * sizes_.dim);
    Mask();
  }

  double PlainCore() {
    const double queries = tokens() * sizes_.heads * sizes_.head_dim;
    const double keys = tokens() * sizes_.kv_heads * sizes_.head_dim;
    Add("attention: queries, keys and values", Kept::kUntilInput, queries + 2 * keys,
        kProjectedInputs);
    Add("gradient of queries, keys and values", Kept::kFromInput, queries + 2 * keys);
    if (shape_.query_gate) Add("attention: gates", Kept::kUntilInput, 2 * queries);
    if (shape_.qk_norm) {
      Add("norm: queries and keys", Kept::kUntilInput, queries + keys);
      AddBytes("norm: mean and 1 / deviation of heads", Kept::kUntilInput,
               2 * kFp32ElementBytes * (queries + keys) / sizes_.head_dim);
    }
    Core(queries);
    // Kernels that store scores need a copy of keys and values for each head
    // (core/transformer/dot_product_attention.py: repeat_interleave).
    if (stores_scores() && keys != queries) {
      Add("attention: repeated keys and values", Kept::kUntilInput, 2 * (queries - keys),
          kCoreAttention);
    }
    return queries;
  }

  // core/transformer/multi_latent_attention.py. The projections down are on every rank.
  double LatentCore() {
    const LatentShape& latent = *shape_.latent;
    const double per_head = tokens() * sizes_.heads;
    const double queries = per_head * Real(latent.query_dim());
    const double values = per_head * Real(latent.value_dim);
    const double ranks = tokens_of_rank() * Real(latent.query_rank + latent.kv_rank);
    Add("norm: latent vectors", Kept::kUntilInput, ranks);
    AddLinearInput("norm: normalized latent vectors", ranks);
    Add("rotary keys", Kept::kUntilInput, tokens_of_rank() * Real(latent.rotary_dim));
    Add("attention: queries and keys", Kept::kUntilInput, 2 * queries, kLatentUp);
    Add("attention: values", Kept::kUntilInput, values, kLatentUp);
    Add("gradient of queries, keys and values", Kept::kFromInput, 2 * queries + values);
    Core(values);
    return values;
  }

  bool stores_scores() const {
    return MegatronAttention(batch_.profile, kernels_) == AttentionKernel::kUnfused;
  }
  // What the core of attention keeps, whose output has this size.
  void Core(double output) {
    const AttentionKernel kernel = MegatronAttention(batch_.profile, kernels_);
    if (kernel == AttentionKernel::kUnfused) {
      const double scores = MegatronScoreElements(shape_, batch_);
      Add("attention: softmax", Kept::kUntilInput, scores, kCoreAttention);
      if (!has_dropout()) return;
      AddBytes("attention: mask of dropout", Kept::kUntilInput, kMaskBytes * scores,
               kCoreAttention);
      Add("attention: softmax after dropout", Kept::kUntilInput, scores, kCoreAttention);
      return;
    }
    AddBytes("attention: log-sum-exp", Kept::kUntilInput,
             kFp32ElementBytes * tokens() * sizes_.heads, kCoreAttention);
    // FlashAttention's output is [samples, tokens], the projection's input [tokens, samples]. With
    // one sample, both are the same tensor.
    if (kernel == AttentionKernel::kFlash && batch_.samples > 1) {
      Add("attention: output in FlashAttention's order", Kept::kUntilInput, output, kCoreAttention);
    }
  }

  // The input of the activation is kept and its output is the second matmul's input, with bias and
  // activation fused or not (core/fusions/fused_bias_gelu.py).
  void Dense() {
    const double elements = tokens() * sizes_.hidden;
    Add("activation: input", Kept::kUntilInput, elements * parts(), kFeedForward);
    AddLinearInput("activation: output", elements, kFeedForward | kActivation);
    Add("activation: gradient of the input", Kept::kFromInput, elements * parts());
    Add("gradient of the residual stream", Kept::kFromInput, tokens_of_rank() * sizes_.dim);
  }

  // Gathered and dispatched tokens are not kept: the permutation keeps indices only
  // (core/transformer/moe/token_dispatcher.py, moe_utils.py).
  void Experts() {
    const ExpertShape& experts = *shape_.experts;
    const double rows = tokens_of_rank() * Real(batch_.expert_division()) * Real(experts.top_k) *
                        batch_.expert_imbalance;
    const double inner = rows * Real(experts.hidden) / Real(batch_.expert_division());
    // Scores, their softmax and the map of tokens to experts, in fp32.
    AddBytes("router", Kept::kUntilInput,
             3 * kFp32ElementBytes * tokens_of_rank() * Real(experts.experts), kExpertsModule);
    const double width = experts.latent > 0 ? Real(experts.latent) : sizes_.dim;
    AddLinearInput("experts: rows", rows * width, kExpertsModule | kExpertRows);
    Add("activation: input", Kept::kUntilInput, inner * parts(),
        kExpertsModule | kExpertActivation);
    AddLinearInput("activation: output", inner, kExpertsModule | kActivation | kExpertActivation);
    Add("activation: gradient of the input", Kept::kFromInput, inner * parts());
    Add("experts: gradient of the output", Kept::kFromInput, rows * width);
    // Without a gate, the activation's output is kept before it is multiplied by the router's
    // probability, too (core/transformer/mlp.py: per_token_scale).
    if (!shape_.gated && ReleaseOf(batch_.profile) != MegatronRelease::kContainer2401) {
      Add("activation: output before its weight", Kept::kUntilInput, inner,
          kExpertsModule | kExpertActivation);
    }
    if (experts.shared == 0) return;
    Add("shared experts", Kept::kUntilInput,
        tokens() * RankSizes::Share(experts.shared_width(), batch_) * (parts() + 1),
        kExpertsModule | kSharedExperts);
  }
  double parts() const { return shape_.gated ? 2 : 1; }

  const ModelShape& shape_;
  const Microbatch& batch_;
  RankSizes sizes_;
  MegatronKernels kernels_;
  double element_, linear_;
  KeptTensors tensors_;
};

double HiddenElements(const ModelShape& shape, const Microbatch& batch) {
  return batch.tokens_of_rank() * static_cast<double>(shape.dim);
}
double LogitElements(const ModelShape& shape, const Microbatch& batch) {
  return batch.tokens() * RankSizes(shape, batch).vocabulary;
}

bool HasAttention(LayerKind kind) {
  return kind == LayerKind::kBlock || kind == LayerKind::kAttention;
}
bool HasFeedForward(LayerKind kind) {
  return kind == LayerKind::kBlock || kind == LayerKind::kFeedForward ||
         kind == LayerKind::kExperts;
}

// What the feed-forward part keeps until its backward, which precedes attention's.
double FeedForwardBytes(const ModelShape& shape, std::int64_t layer, const Microbatch& batch,
                        MegatronKernels kernels) {
  if (!HasFeedForward(shape.kind(layer))) return 0;
  MegatronKeptList list(shape, batch, kernels);
  list.FeedForward(layer);
  return KeptFromForward(list.Take());
}

}  // namespace

MegatronRelease ReleaseOf(const Profile& profile) {
  if (profile.release.empty() || profile.release > "2025-10") return MegatronRelease::kNewest;
  return profile.release < "2025-01" ? MegatronRelease::kContainer2401
                                     : MegatronRelease::kUntilOctober2025;
}

// TransformerEngine's attention/dot_product_attention/utils.py: get_attention_backend.
AttentionKernel MegatronAttention(const Profile& profile, MegatronKernels kernels) {
  using enum AttentionKernel;
  if (profile.attention != kAuto) return profile.attention;
  if (kernels == MegatronKernels::kLocal) return kUnfused;
  if (profile.deterministic && ReleaseOf(profile) == MegatronRelease::kContainer2401) {
    return kUnfused;
  }
  switch (profile.generation) {
    case Generation::kAmpere:
      return kFlash;
    case Generation::kHopper:
      return kFused;
    case Generation::kBlackwell:
      break;
  }
  // cuDNN before 9.18.1 has no deterministic backward there (common/fused_attn/fused_attn.cpp).
  return profile.deterministic ? kFlash : kFused;
}

double MegatronScoreElements(const ModelShape& shape, const Microbatch& batch) {
  const auto sequence = static_cast<double>(batch.sequence);
  return static_cast<double>(batch.samples) * RankSizes(shape, batch).heads * sequence /
         static_cast<double>(batch.context) * (sequence + static_cast<double>(batch.earlier));
}

KeptTensors MegatronKeptByLayer(const ModelShape& shape, std::int64_t layer,
                                const Microbatch& batch, MegatronKernels kernels) {
  MegatronKeptList list(shape, batch, kernels);
  const LayerKind kind = shape.kind(layer);
  if (HasAttention(kind)) shape.has_delta(layer) ? list.Delta() : list.Attention();
  if (kind == LayerKind::kMamba) list.Mamba();
  if (HasFeedForward(kind)) list.FeedForward(layer);
  return list.Take();
}

// Two norms, the projection of both outputs, and a final norm
// (core/transformer/multi_token_prediction.py).
KeptTensors MegatronKeptByPredictor(const ModelShape& shape, const Microbatch& batch,
                                    MegatronKernels kernels) {
  KeptTensors kept;
  for (std::int64_t i = 0; i < shape.predictor_layers(); ++i) {
    const KeptTensors layer = MegatronKeptByLayer(shape, shape.layers + i, batch, kernels);
    kept.insert(kept.end(), layer.begin(), layer.end());
  }
  const double bytes = HiddenElements(shape, batch) * batch.element_bytes();
  kept.push_back({"predictor: inputs of norms", Kept::kUntilInput, 3 * bytes});
  kept.push_back({"predictor: outputs of norms", Kept::kUntilWeight, 3 * bytes});
  return kept;
}

KeptTensors MegatronKeptByEmbedding(const ModelShape& shape, const Microbatch& batch) {
  KeptTensors kept = {{"token ids", Kept::kUntilWeight, kInt64ElementBytes * batch.tokens()}};
  if (batch.profile.dropout) {
    kept.push_back({"dropout: mask", Kept::kUntilInput, kMaskBytes * HiddenElements(shape, batch)});
  }
  return kept;
}

KeptTensors MegatronKeptByFinalNorm(const ModelShape& shape, const Microbatch& batch) {
  const double bytes = HiddenElements(shape, batch) * batch.element_bytes();
  return {{"norm: input", Kept::kUntilInput, bytes},
          {"norm: output", Kept::kUntilWeight, bytes},
          {"norm: mean and 1 / deviation", Kept::kUntilInput,
           2 * kFp32ElementBytes * batch.tokens_of_rank()}};
}

// Softmax replaces the fp32 copy of the logits, and its gradient replaces the softmax
// (core/tensor_parallel/cross_entropy.py).
KeptTensors MegatronKeptByLogits(const ModelShape& shape, const Microbatch& batch) {
  const double logits = LogitElements(shape, batch);
  return {{"loss: softmax", Kept::kUntilInput, kFp32ElementBytes * logits},
          {"gradient of logits", Kept::kFromInput, batch.element_bytes() * logits}};
}

// The gradients of scores after dropout and before the softmax, when the tensors of the
// feed-forward part are gone; or the gradients of its activation. Both have three gradients of the
// size of hidden states: of the residual stream, of the part's output and of its input.
double MegatronLayerTransient(const ModelShape& shape, std::int64_t layer, const Microbatch& batch,
                              MegatronKernels kernels) {
  const LayerKind kind = shape.kind(layer);
  const double element = batch.element_bytes();
  const double hidden = 3 * HiddenElements(shape, batch) * element;
  const bool stores_scores =
      HasAttention(kind) && MegatronAttention(batch.profile, kernels) == AttentionKernel::kUnfused;
  const double scores = stores_scores ? MegatronScoreElements(shape, batch) : 0;
  const double of_attention =
      2 * element * scores + hidden - FeedForwardBytes(shape, layer, batch, kernels);
  const bool is_dense = HasFeedForward(kind) && !shape.has_experts(layer);
  const double inner = is_dense ? batch.tokens() * RankSizes(shape, batch).hidden : 0;
  return std::max(of_attention, 2 * element * inner + hidden);
}

// The bf16 logits while their copy is made, and the gradient in bf16 while it is rounded. The fused
// loss of torch.compile makes more copies; how many is read off measured peaks.
double MegatronLossTransient(const ModelShape& shape, const Microbatch& batch) {
  const double logits = LogitElements(shape, batch);
  if (!batch.profile.fused_loss) return batch.element_bytes() * logits;
  switch (ReleaseOf(batch.profile)) {
    case MegatronRelease::kContainer2401:
      return (18 - kFp32ElementBytes) * logits;
    case MegatronRelease::kUntilOctober2025:
      return (14 - kFp32ElementBytes) * logits;
    case MegatronRelease::kNewest:
      break;
  }
  return (10 - kFp32ElementBytes) * logits;
}

}  // namespace penstock
