// What the layers of a pipeline stage add up to.
#pragma once

#include "cost_model/kept_tensors.h"
#include "cost_model/layer_work.h"
#include "cost_model/microbatch.h"
#include "cost_model/recompute.h"
#include "model_spec/layer_range.h"
#include "model_spec/model_shape.h"

namespace penstock {

// Equal parts of a stage, as its implementation computes them (implementation.h): all of its layers
// of one kind, its embedding, or its head.
struct StagePart {
  Work work = {};         // of one of them, without recomputation
  KeptTensors kept = {};  // likewise
  int count = 1;
  bool is_layer = false;
  bool is_recomputed = false;  // as a whole
  double transient = 0;        // bytes that it needs only while it computes
};
std::vector<StagePart> PartsOfStage(const ModelShape& shape, const LayerRange& stage,
                                    const Microbatch& batch, const Recompute& recompute = {});

struct KeptBytes {
  double from_forward = 0;  // from the end of F to I or B
  double after_input = 0;   // from the end of I to W
  double transient = 0;     // at most, while one of the parts computes
  double offloaded = 0;     // to the memory of the host, not in the above
};
KeptBytes KeptByStage(const ModelShape& shape, const LayerRange& stage, const Microbatch& batch,
                      const Recompute& recompute = {});

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
