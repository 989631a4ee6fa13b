// The tensors that a microbatch keeps alive between its actions, as the graph compiler saves them
// with `exact: true` and no recomputation.
#pragma once

#include <string_view>
#include <vector>

#include "cost_model/microbatch.h"
#include "model_spec/model_shape.h"

namespace penstock {

// Which actions keep a tensor alive.
enum class Kept {
  kUntilInput,   // from F to I: only I reads it
  kUntilWeight,  // from F to W
  kFromInput,    // from I to W: a gradient that I computes and W reads
};

struct KeptTensor {
  std::string_view name;
  Kept kept = Kept::kUntilInput;
  double bytes = 0;
  int modules = 0;  // that free it if they are computed again: a sum of Modules (layer_work.h)
};
using KeptTensors = std::vector<KeptTensor>;

// What the parts of one block keep, each with the norm in front of it.
KeptTensors KeptByAttention(const ModelShape& shape, const Microbatch& batch);
KeptTensors KeptByFeedForward(const ModelShape& shape, std::int64_t layer, const Microbatch& batch);
KeptTensors KeptByMamba(const ModelShape& shape, const Microbatch& batch);
KeptTensors KeptByDelta(const ModelShape& shape, const Microbatch& batch);
KeptTensors KeptByEmbedding(const Microbatch& batch);
KeptTensors KeptByFinalNorm(const ModelShape& shape, const Microbatch& batch);
// What the head and the loss keep.
KeptTensors KeptByLogits(const ModelShape& shape, const Microbatch& batch);

// In bytes.
double KeptFromForward(const KeptTensors& tensors);  // from the end of F
double KeptAfterInput(const KeptTensors& tensors);   // from the end of I

}  // namespace penstock
