// The implementations, each in its file.
#pragma once

#include "cost_model/implementation.h"

namespace penstock {

// What `penstock train` computes: the kernels and the tensors that the graph compiler makes of a
// stage with `exact: true` and no recomputation.
Implementation PenstockImplementation();

// Models as PyTorch code (torchtitan, Hugging Face's transformers), run operator by operator or
// compiled one layer at a time.
Implementation TorchImplementation();
Implementation TorchCompileImplementation();

// Megatron-LM with its local layers, as most published runs of 2021 to 2023 used it: one kernel per
// operator, attention with all scores in memory, and collectives that F waits for.
Implementation MegatronImplementation();

// Megatron-Core with TransformerEngine, as Megatron-Bridge runs it: fused norms, attention and
// loss, linear layers in 8 and 4 bits, and the dispatchers of experts.
Implementation TransformerEngineImplementation();

}  // namespace penstock
