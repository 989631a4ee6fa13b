#include "cost_model/implementations/implementations.h"
#include "cost_model/implementations/penstock_collectives.h"
#include "cost_model/implementations/penstock_context.h"
#include "cost_model/stage_layers.h"

namespace penstock {
namespace {

void Append(const KeptTensors& from, KeptTensors& to) {
  to.insert(to.end(), from.begin(), from.end());
}

StagePart Layer(const ModelShape& shape, std::int64_t layer, const Microbatch& batch) {
  using enum LayerKind;
  StagePart part{.is_layer = true};
  const LayerKind kind = shape.kind(layer);
  if (kind == kBlock || kind == kAttention) {
    const bool has_delta = shape.has_delta(layer);
    Append(has_delta ? DeltaWork(shape, batch) : AttentionWork(shape, layer, batch), part.work);
    Append(has_delta ? KeptByDelta(shape, batch) : KeptByAttention(shape, batch), part.kept);
    SetContextWork(shape, batch, part.work);
    if (!has_delta) SetContextKept(shape, batch, part.kept);
  }
  if (kind == kMamba) {
    Append(MambaWork(shape, batch), part.work);
    Append(KeptByMamba(shape, batch), part.kept);
  }
  if (kind == kBlock || kind == kFeedForward || kind == kExperts) {
    Append(FeedForwardWork(shape, layer, batch), part.work);
    Append(KeptByFeedForward(shape, layer, batch), part.kept);
  }
  if (shape.has_experts(layer)) AddContextLoad(shape, batch, part.work);
  SetLayerCollectives(shape, layer, batch, part.work);
  return part;
}

StagePart Embedding(const ModelShape& shape, const Microbatch& batch) {
  StagePart part{EmbeddingWork(shape, batch), KeptByEmbedding(batch)};
  SetEmbeddingCollectives(shape, batch, part.work);
  return part;
}
StagePart FinalNorm(const ModelShape& shape, const Microbatch& batch) {
  return {FinalNormWork(shape, batch), KeptByFinalNorm(shape, batch)};
}
StagePart Logits(const ModelShape& shape, const Microbatch& batch) {
  StagePart part{LogitsWork(shape, batch), KeptByLogits(shape, batch)};
  SetLogitsCollectives(shape, batch, part.work);
  AddContextLoss(batch, part.work);
  return part;
}

// A layer that predicts a further token joins the hidden states with an embedding, is a block like
// the last one, and has logits and a loss of its own (DeepSeek-V3, section 2.2).
StagePart Predictor(const ModelShape& shape, const Microbatch& batch) {
  StagePart block = Layer(shape, shape.layers, batch);
  for (std::int64_t i = 1; i < shape.predictor_layers(); ++i) {
    const StagePart next = Layer(shape, shape.layers + i, batch);
    Append(next.work, block.work);
    Append(next.kept, block.kept);
  }
  Append(PredictorWork(shape, batch), block.work);
  return block;
}

StateFormat States(const Microbatch& batch) { return AdamWFormat(batch.element_bytes()); }

}  // namespace

Implementation PenstockImplementation() {
  return {.name = "penstock",
          .source = "this project's graph compiler (src/engine/graph)",
          .copies_heads = true,
          .gathers_once = true,
          .pads_vocabulary = false,
          .shards_over_context = false,
          .layer = &Layer,
          .predictor = &Predictor,
          .embedding = &Embedding,
          .final_norm = &FinalNorm,
          .logits = &Logits,
          .states = &States,
          .divides_tokens = &CanDivideTokens,
          .summed_once = &SummedOncePerStep};
}

}  // namespace penstock
