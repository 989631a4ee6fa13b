// The work of all layers of a stage.
#pragma once

#include "cost_model/stage_layers.h"

namespace penstock {

// The first stage has no input gradient, so that its whole backward is W.
inline Work WorkOfStage(const ModelShape& shape, const LayerRange& stage, const Microbatch& batch) {
  Work work;
  for (const StagePart& part : PartsOfStage(shape, stage, batch)) {
    for (int i = 0; i < part.count; ++i) Append(part.work, work);
  }
  if (stage.has_embedding()) {
    Append(work.backward_input, work.backward_weight);
    work.backward_input.clear();
  }
  return work;
}

}  // namespace penstock
