// What the ranks that divide a stage's matrices exchange in the engine: the collectives that its
// models call (src/engine/model), which are in the graphs of F, I and W, and the sum of its step.
#pragma once

#include <cstdint>

#include "cost_model/layer_work.h"
#include "cost_model/microbatch.h"
#include "model_spec/layer_range.h"
#include "model_spec/model_shape.h"

namespace penstock {

// Whether these ranks divide the tokens between layers, if they are to: they divide the vocabulary,
// and the model predicts no further tokens.
bool CanDivideTokens(const ModelShape& shape, const Microbatch& batch);

// Each replaces the collectives of `tensor` in the work of a part of a stage.
void SetLayerCollectives(const ModelShape& shape, std::int64_t layer, const Microbatch& batch,
                         Work& work);
void SetEmbeddingCollectives(const ModelShape& shape, const Microbatch& batch, Work& work);
void SetLogitsCollectives(const ModelShape& shape, const Microbatch& batch, Work& work);

// Returns the elements of the gradients that the ranks add once per step, in one all-reduce:
// gradients of parameters that several ranks have, but use for other tokens or heads.
double SummedOncePerStep(const ModelShape& shape, const LayerRange& stage, const Microbatch& batch);

}  // namespace penstock
