// What the layers of a pipeline stage add up to.
#pragma once

#include "analytic/kept_tensors.h"
#include "analytic/layer_work.h"
#include "analytic/microbatch.h"
#include "model_spec/layer_range.h"
#include "model_spec/model_shape.h"

namespace penstock {

// The first stage has no input gradient, so that its whole backward is W.
Work WorkOfStage(const ModelShape& shape, const LayerRange& stage, const Microbatch& batch);

struct KeptBytes {
  double from_forward = 0;  // from the end of F to I or B
  double after_input = 0;   // from the end of I to W
};
KeptBytes KeptByStage(const ModelShape& shape, const LayerRange& stage, const Microbatch& batch);

// The number of parameters of a rank. A last stage has its own copy of a tied head.
struct ParameterCount {
  double of_experts = 0;  // which replicas divide
  double others = 0;

  double all() const { return of_experts + others; }
};
ParameterCount ParametersOfStage(const ModelShape& shape, const LayerRange& stage,
                                 const Microbatch& batch);

// The bytes of the hidden states of a rank, the message between two stages.
double HiddenBytes(const ModelShape& shape, const Microbatch& batch);

}  // namespace penstock
