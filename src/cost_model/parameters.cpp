#include "cost_model/parameters.h"

namespace penstock {
namespace {

// The gain of a norm, and LayerNorm's bias.
double NormParameters(const ModelShape& shape) {
  const auto dim = static_cast<double>(shape.dim);
  return shape.architecture == Architecture::kGpt2 ? 2 * dim : dim;
}

double MatricesOf(const ModelShape& shape, double dim, double hidden) {
  return (shape.gated ? 3 : 2) * dim * hidden;
}

double LatentParameters(const ModelShape& shape) {
  const LatentShape& latent = *shape.latent;
  const auto dim = static_cast<double>(shape.dim), heads = static_cast<double>(shape.heads);
  const auto query_rank = static_cast<double>(latent.query_rank);
  const auto kv_rank = static_cast<double>(latent.kv_rank);
  const double queries = heads * static_cast<double>(latent.query_dim());
  const double of_queries =
      latent.query_rank == 0 ? dim * queries : dim * query_rank + query_rank + query_rank * queries;
  return of_queries + dim * (kv_rank + static_cast<double>(latent.rotary_dim)) + kv_rank +
         kv_rank * heads * static_cast<double>(latent.plain_dim + latent.value_dim) +
         heads * static_cast<double>(latent.value_dim) * dim;
}

double Gpt2AttentionParameters(double dim) { return dim * 3 * dim + 3 * dim + dim * dim + dim; }

// The parameters of one expert of the layer.
double OneExpert(const ModelShape& shape) {
  const ExpertShape& experts = *shape.experts;
  const auto width = static_cast<double>(experts.latent > 0 ? experts.latent : shape.dim);
  const auto hidden = static_cast<double>(experts.hidden);
  const double biases = (shape.gated ? 2 : 1) * hidden + width;
  return MatricesOf(shape, width, hidden) + (experts.biases ? biases : 0);
}

// The norms of one part of a block.
double NormsOfPart(const ModelShape& shape) {
  return (shape.norms_outputs ? 2 : 1) * NormParameters(shape);
}

double SharedExpertParameters(const ModelShape& shape) {
  const ExpertShape& experts = *shape.experts;
  const auto dim = static_cast<double>(shape.dim);
  const auto latent = static_cast<double>(experts.latent);
  return MatricesOf(shape, dim, static_cast<double>(experts.shared_width())) +
         (experts.shared_gate ? dim : 0) + 2 * dim * latent;
}

}  // namespace

double AttentionParameters(const ModelShape& shape) {
  const auto dim = static_cast<double>(shape.dim);
  if (shape.latent) return NormsOfPart(shape) + LatentParameters(shape);
  if (shape.architecture == Architecture::kGpt2) {
    return NormParameters(shape) + Gpt2AttentionParameters(dim);
  }
  const auto head_dim = static_cast<double>(shape.head_dim);
  const double queries = head_dim * static_cast<double>(shape.heads);
  const double keys = head_dim * static_cast<double>(shape.kv_heads);
  const double qk_norms = shape.qk_norm ? 2 * head_dim : 0;
  const double gate = shape.query_gate ? dim * queries : 0;
  const double biases = (shape.qkv_biases ? queries + 2 * keys : 0) + (shape.output_bias ? dim : 0);
  const double sinks = shape.sinks ? static_cast<double>(shape.heads) : 0;
  return NormsOfPart(shape) + 2 * dim * queries + 2 * dim * keys + qk_norms + gate + biases + sinks;
}

double ExpertParameters(const ModelShape& shape, std::int64_t layer) {
  if (!shape.has_experts(layer)) return 0;
  return static_cast<double>(shape.experts->experts) * OneExpert(shape);
}

double FeedForwardParameters(const ModelShape& shape, std::int64_t layer) {
  const auto dim = static_cast<double>(shape.dim), hidden = static_cast<double>(shape.hidden);
  if (shape.architecture == Architecture::kGpt2) {
    return NormParameters(shape) + dim * hidden + hidden + hidden * dim + dim;
  }
  if (!shape.has_experts(layer)) return NormsOfPart(shape) + MatricesOf(shape, dim, hidden);
  const ExpertShape& experts = *shape.experts;
  const auto count = static_cast<double>(experts.experts);
  const bool has_bias = experts.balance == ExpertShape::Balance::kBias || experts.biases;
  return NormsOfPart(shape) + dim * count + (has_bias ? count : 0) +
         ExpertParameters(shape, layer) + SharedExpertParameters(shape);
}

double MambaParameters(const ModelShape& shape) {
  const MambaShape& mamba = *shape.mamba;
  const auto dim = static_cast<double>(shape.dim), inner = static_cast<double>(mamba.inner());
  const auto states = static_cast<double>(2 * mamba.groups * mamba.state);
  const auto heads = static_cast<double>(mamba.heads);
  const double convolved = inner + states;
  return NormParameters(shape) + dim * (2 * inner + states + heads) +
         convolved * static_cast<double>(mamba.convolution) + convolved + 3 * heads + inner +
         inner * dim;
}

double DeltaParameters(const ModelShape& shape) {
  const DeltaShape& delta = *shape.delta;
  const auto dim = static_cast<double>(shape.dim), heads = static_cast<double>(delta.value_heads);
  const auto keys = static_cast<double>(delta.keys()), values = static_cast<double>(delta.values());
  const double convolved = (2 * keys + values) * static_cast<double>(delta.convolution);
  return NormParameters(shape) + dim * (2 * keys + 2 * values + 2 * heads) + convolved + 2 * heads +
         static_cast<double>(delta.head_dim) + values * dim;
}

double LayerParameters(const ModelShape& shape, std::int64_t layer) {
  switch (shape.kind(layer)) {
    case LayerKind::kMamba:
      return MambaParameters(shape);
    case LayerKind::kAttention:
      return AttentionParameters(shape);
    case LayerKind::kFeedForward:
    case LayerKind::kExperts:
      return FeedForwardParameters(shape, layer);
    case LayerKind::kBlock:
      break;
  }
  return (shape.has_delta(layer) ? DeltaParameters(shape) : AttentionParameters(shape)) +
         FeedForwardParameters(shape, layer);
}

double PredictorParameters(const ModelShape& shape) {
  const auto dim = static_cast<double>(shape.dim);
  return 3 * NormParameters(shape) + 2 * dim * dim;
}

double EmbeddingParameters(const ModelShape& shape) {
  return static_cast<double>(shape.vocabulary + shape.positions) * static_cast<double>(shape.dim);
}

double HeadParameters(const ModelShape& shape) {
  const double head =
      shape.tied ? 0 : static_cast<double>(shape.vocabulary) * static_cast<double>(shape.dim);
  return NormParameters(shape) + head;
}

double ModelParameters(const ModelShape& shape) {
  double sum = EmbeddingParameters(shape) + HeadParameters(shape);
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    sum += LayerParameters(shape, layer);
  }
  return sum;
}

}  // namespace penstock
