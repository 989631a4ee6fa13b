// What the ranks that divide the tokens of samples exchange, compute and keep in the engine, beyond
// their share of all else (src/engine/model/context_parallel.h).
#pragma once

#include "cost_model/kept_tensors.h"
#include "cost_model/layer_work.h"
#include "cost_model/microbatch.h"
#include "model_spec/model_shape.h"

namespace penstock {

// Replaces the exchange of keys and values in the work of a layer, if it has one, and the scores
// that a rank computes.
void SetContextWork(const ModelShape& shape, const Microbatch& batch, Work& work);
// Replaces the keys, the values and the results that attention keeps.
void SetContextKept(const ModelShape& shape, const Microbatch& batch, KeptTensors& kept);

// Add the sums over the ranks: of the load of experts, and of the loss.
void AddContextLoad(const ModelShape& shape, const Microbatch& batch, Work& work);
void AddContextLoss(const Microbatch& batch, Work& work);

}  // namespace penstock
