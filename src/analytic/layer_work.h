// The FLOPs and the memory traffic of F, I and W, by layer kind.
#pragma once

#include <string_view>
#include <vector>

#include "analytic/microbatch.h"
#include "model_spec/model_shape.h"

namespace penstock {

// One kernel of a rank and microbatch. Each reads its inputs and writes its outputs once.
struct KernelCost {
  std::string_view name;
  double flops = 0;     // as the graph compiler counts them, with causal attention in full
  double skipped = 0;   // of these, the ones of masked scores, which fused attention never computes
  double bytes = 0;     // read from and written to the device's memory
  double sent = 0;      // bytes that the rank sends to the others that divide the layer
  double routed = 0;    // bytes that it sends to the ranks that have other experts
  int collectives = 0;  // that send these bytes, each with a latency
};
using Kernels = std::vector<KernelCost>;

struct Work {
  Kernels forward, backward_input, backward_weight;
};

// The work of the parts of one block, each with its norm and its addition to the residual stream.
Work AttentionWork(const ModelShape& shape, const Microbatch& batch);
Work FeedForwardWork(const ModelShape& shape, std::int64_t layer, const Microbatch& batch);
Work EmbeddingWork(const ModelShape& shape, const Microbatch& batch);
Work FinalNormWork(const ModelShape& shape, const Microbatch& batch);
// The work of the head and the loss.
Work LogitsWork(const ModelShape& shape, const Microbatch& batch);

double FlopsOf(const Kernels& kernels);
double BytesOf(const Kernels& kernels);

}  // namespace penstock
