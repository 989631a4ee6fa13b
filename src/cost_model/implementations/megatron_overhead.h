// Memory of a rank of Megatron-LM that no microbatch has: parameters with all that is copied to
// each rank, the format of states, and buffers.
#pragma once

#include "cost_model/implementation.h"
#include "cost_model/implementations/megatron_kept.h"
#include "cost_model/stage_layers.h"
#include "model_spec/layer_range.h"

namespace penstock {

ParameterCount MegatronParameters(const ModelShape& shape, const LayerRange& stage,
                                  const Microbatch& batch);
StateFormat MegatronStates(const Microbatch& batch);
RankOverhead MegatronOverhead(const ModelShape& shape, const Microbatch& batch,
                              const RankPlace& place, MegatronKernels kernels);

}  // namespace penstock
