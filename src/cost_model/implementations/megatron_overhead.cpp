#include "cost_model/implementations/megatron_overhead.h"

#include "cost_model/rank_sizes.h"

namespace penstock {
namespace {

constexpr double kMiB = 1 << 20;

double Real(std::int64_t size) { return static_cast<double>(size); }

// What every rank of `tensor` has a copy of: norms, routers, projections to latent vectors and
// biases of outputs.
double ReplicatedParameters(const ModelShape& shape, std::int64_t layer, bool has_biases) {
  const LayerKind kind = shape.kind(layer);
  const double dim = Real(shape.dim);
  double replicated = kind == LayerKind::kBlock ? 2 * dim : dim;
  const bool attends = kind == LayerKind::kBlock || kind == LayerKind::kAttention;
  if (attends && shape.latent) {
    const LatentShape& latent = *shape.latent;
    replicated +=
        (dim + 1) * Real(latent.query_rank + latent.kv_rank) + dim * Real(latent.rotary_dim);
  } else if (attends && has_biases) {
    replicated += dim;
  }
  if (shape.has_experts(layer)) {
    replicated += Real(shape.experts->experts) * dim;
  } else if (has_biases && (kind == LayerKind::kBlock || kind == LayerKind::kFeedForward)) {
    replicated += dim;
  }
  return replicated;
}

// Biases of linear layers, which ParametersOfStage counts only where the shape has them.
ParameterCount Biases(const ModelShape& shape, std::int64_t layer, const Microbatch& batch) {
  ParameterCount count;
  const double dim = Real(shape.dim), inputs = shape.gated ? 2 : 1;
  const LayerKind kind = shape.kind(layer);
  const bool attends = kind == LayerKind::kBlock || kind == LayerKind::kAttention;
  if (attends && !shape.latent) {
    count.others += Real((shape.heads + 2 * shape.kv_heads) * shape.head_dim) + dim;
  }
  if (shape.has_experts(layer)) {
    const ExpertShape& experts = *shape.experts;
    count.of_experts = Real(experts.experts) / Real(batch.expert) *
                       (inputs * Real(experts.hidden) / Real(batch.expert_division()) + dim);
  } else if (kind == LayerKind::kBlock || kind == LayerKind::kFeedForward) {
    count.others += inputs * Real(shape.hidden) + dim;
  }
  count.others /= Real(batch.tensor);
  return count;
}

// PyTorch has a workspace of cuBLAS for each thread that computes: forward and backward. Its size
// is 2 x 4096 + 8 x 16 KiB by default, and 32 MiB from Hopper on and with
// CUBLAS_WORKSPACE_CONFIG=:4096:8, which deterministic runs need (c10's CUDABlas.cpp; both agree
// with measured peaks to 0.1 MB).
double TorchWorkspace(const Profile& profile) {
  const bool is_large = profile.deterministic || profile.generation != Generation::kAmpere;
  return 2 * (is_large ? 32 * kMiB : 8.125 * kMiB);
}

// cpp_extensions/gemm.py: get_cublas_workspace_size_bytes. Grouped matmuls have one for each of
// four streams (get_num_cublas_streams).
double EngineWorkspace(const ModelShape& shape, const Profile& profile) {
  const double one = profile.generation == Generation::kAmpere ? 4 * kMiB : 32 * kMiB;
  const bool has_streams = shape.experts && profile.grouped_experts &&
                           ReleaseOf(profile) != MegatronRelease::kContainer2401;
  return has_streams ? 5 * one : one;
}

// The driver's context with the kernels of PyTorch, cuBLAS and cuDNN takes about half a GiB on A100
// and H100. NCCL has a buffer of 4 MiB (NCCL_BUFFSIZE) for each of up to 16 channels and both
// directions of every group of ranks, and buffers of its other protocols of about a third of that.
double ContextBytes(const Microbatch& batch, const RankPlace& place) {
  constexpr double kDriver = 512 * kMiB, kGroup = 16 * 2 * 4 * kMiB * 4 / 3;
  int groups = 1;  // of all replicas
  for (const bool has : {batch.tensor > 1, batch.context > 1, batch.expert_ranks() > batch.tensor,
                         place.ranks > 1}) {
    groups += has ? 1 : 0;
  }
  return kDriver + groups * kGroup;
}

// Buffers and masks of the framework.
double BuffersOf(const ModelShape& shape, const Microbatch& batch, const RankPlace& place,
                 MegatronKernels kernels) {
  const Profile& profile = batch.profile;
  const double element = batch.element_bytes();
  double bytes = 0;
  // Scores are computed into one buffer (core/transformer/dot_product_attention.py: "mpu").
  if (kernels == MegatronKernels::kLocal &&
      MegatronAttention(profile, kernels) == AttentionKernel::kUnfused) {
    bytes += element * MegatronScoreElements(shape, batch);
  }
  // The data loader's mask of one byte per pair of tokens (create_attention_mask_in_dataloader).
  if (profile.attention_mask) {
    bytes += Real(batch.samples) * Real(batch.sequence) * Real(batch.sequence);
  }
  // Logits' gradients and hidden states whose weight gradient is computed after the pipeline.
  if (profile.deferred_head > 0 && place.rank == place.ranks - 1) {
    const double logits = batch.tokens() * RankSizes(shape, batch).vocabulary;
    bytes += profile.deferred_head * element * (logits + batch.tokens() * Real(shape.dim));
  }
  return bytes;
}

}  // namespace

// As ParametersOfStage, but with biases, and with all that each rank of `tensor` has a copy of.
ParameterCount MegatronParameters(const ModelShape& shape, const LayerRange& stage,
                                  const Microbatch& batch) {
  Microbatch plain = batch;
  plain.profile.implementation = nullptr;
  ParameterCount count = ParametersOfStage(shape, stage, plain);
  const double copied = 1 - 1 / Real(batch.tensor);
  const bool has_biases =
      batch.profile.linear_biases && shape.architecture == Architecture::kDecoder;
  const auto add = [&](std::int64_t layer, double times) {
    count.others += times * copied * ReplicatedParameters(shape, layer, has_biases);
    if (!has_biases) return;
    const ParameterCount biases = Biases(shape, layer, batch);
    count.others += times * biases.others;
    count.of_experts += times * biases.of_experts;
  };
  for (std::int64_t layer = stage.begin; layer < stage.end; ++layer) add(layer, 1);
  for (std::int64_t i = 0; i < shape.predictor_layers() && stage.predictors > 0; ++i) {
    add(shape.layers + i, shape.shared_predictors ? 1 : Real(stage.predictors));
  }
  if (stage.has_embedding()) count.others += copied * Real(shape.positions * shape.dim);
  if (stage.head) count.others += copied * Real(shape.dim);
  // Predictors have a copy of the embedding, unless it is on their stage.
  if (stage.predictors > 0 && !stage.embedding) {
    count.others += Real(shape.vocabulary * shape.dim) / Real(batch.tensor);
  }
  return count;
}

// Gradients of bf16 weights are summed in fp32 unless grad_reduce_in_fp32 is off, gradients of fp16
// weights in fp16 (training.py: accumulate_allreduce_grads_in_fp32).
StateFormat MegatronStates(const Microbatch& batch) {
  StateFormat format = AdamWFormat(batch.element_bytes());
  const bool in_fp32 = batch.profile.sums_in_fp32() && batch.precision != Precision::kFp16;
  if (!in_fp32) format.gradient = batch.element_bytes();
  return format;
}

RankOverhead MegatronOverhead(const ModelShape& shape, const Microbatch& batch,
                              const RankPlace& place, MegatronKernels kernels) {
  const double element = batch.element_bytes();
  RankOverhead overhead;
  overhead.workspace = TorchWorkspace(batch.profile);
  if (kernels == MegatronKernels::kTransformerEngine) {
    overhead.workspace += EngineWorkspace(shape, batch.profile);
  }
  // One received tensor per chunk, and the buffer of gathered sequences
  // (core/pipeline_parallel/schedules.py, core/tensor_parallel/layers.py).
  if (place.ranks > 1) overhead.messages += place.chunks * HiddenBytes(shape, batch);
  if (batch.sequence_parallel && batch.tensor > 1) {
    overhead.messages += element * batch.tokens() * Real(shape.dim);
  }
  overhead.others = BuffersOf(shape, batch, place, kernels);
  overhead.context = ContextBytes(batch, place);
  return overhead;
}

}  // namespace penstock
