#include "analytic/stage_layers.h"

#include "analytic/parameters.h"
#include "analytic/rank_sizes.h"

namespace penstock {
namespace {

void Append(const Kernels& from, Kernels& to) { to.insert(to.end(), from.begin(), from.end()); }

void Append(const Work& from, Work& to) {
  Append(from.forward, to.forward);
  Append(from.backward_input, to.backward_input);
  Append(from.backward_weight, to.backward_weight);
}

void Add(const KeptTensors& tensors, KeptBytes& to) {
  to.from_forward += KeptFromForward(tensors);
  to.after_input += KeptAfterInput(tensors);
}

}  // namespace

Work WorkOfStage(const ModelShape& shape, const LayerRange& stage, const Microbatch& batch) {
  Work work;
  if (stage.has_embedding()) Append(EmbeddingWork(shape, batch), work);
  for (std::int64_t layer = stage.begin; layer < stage.end; ++layer) {
    Append(AttentionWork(shape, batch), work);
    Append(FeedForwardWork(shape, layer, batch), work);
  }
  if (stage.head) Append(FinalNormWork(shape, batch), work);
  if (stage.has_logits()) Append(LogitsWork(shape, batch), work);
  if (stage.has_embedding()) {
    Append(work.backward_input, work.backward_weight);
    work.backward_input.clear();
  }
  return work;
}

KeptBytes KeptByStage(const ModelShape& shape, const LayerRange& stage, const Microbatch& batch) {
  KeptBytes kept;
  if (stage.has_embedding()) Add(KeptByEmbedding(batch), kept);
  for (std::int64_t layer = stage.begin; layer < stage.end; ++layer) {
    Add(KeptByAttention(shape, batch), kept);
    Add(KeptByFeedForward(shape, layer, batch), kept);
  }
  if (stage.head) Add(KeptByFinalNorm(shape, batch), kept);
  if (stage.has_logits()) Add(KeptByLogits(shape, batch), kept);
  if (stage.has_embedding()) {
    // W reads everything, and the gradient of the output.
    kept.after_input = kept.from_forward + (stage.has_logits() ? 0 : HiddenBytes(shape, batch));
  }
  return kept;
}

ParameterCount ParametersOfStage(const ModelShape& shape, const LayerRange& stage,
                                 const Microbatch& batch) {
  ParameterCount count;
  if (stage.has_embedding()) count.others += EmbeddingParameters(shape);
  for (std::int64_t layer = stage.begin; layer < stage.end; ++layer) {
    const double of_experts = ExpertParameters(shape, layer);
    count.others += AttentionParameters(shape) + FeedForwardParameters(shape, layer) - of_experts;
    count.of_experts += of_experts;
  }
  if (stage.head) count.others += static_cast<double>(shape.dim);  // the norm
  if (stage.has_logits()) count.others += HeadParameters(shape) - static_cast<double>(shape.dim);
  const bool copies_embedding = stage.has_logits() && shape.tied && !stage.embedding;
  if (copies_embedding) {
    count.others += static_cast<double>(shape.vocabulary) * static_cast<double>(shape.dim);
  }
  // Norms and routers are on every rank, but are too few to count.
  count.others /= static_cast<double>(batch.tensor);
  count.of_experts /= static_cast<double>(batch.tensor * batch.expert);
  return count;
}

double HiddenBytes(const ModelShape& shape, const Microbatch& batch) {
  return batch.tokens_of_rank() * static_cast<double>(shape.dim) * batch.element_bytes();
}

}  // namespace penstock
