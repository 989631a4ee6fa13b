// The FLOPs and the memory traffic of F, I and W, by layer kind.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "cost_model/microbatch.h"
#include "model_spec/model_shape.h"

namespace penstock {

// What a kernel or a tensor belongs to, as recomputation and offloading select it by name. A sum of
// these.
enum Modules : std::uint16_t {
  kNorm = 1,
  kCoreAttention = 2,   // scores, softmax and weighted values
  kLatentUp = 4,        // latent vectors to queries, keys and values
  kFeedForward = 8,     // of a dense layer
  kActivation = 16,     // of a layer or of experts
  kExpertsModule = 32,  // router, exchanges and experts
  kSharedExperts = 64,
  // Tensors that only offloading selects.
  kAttentionInput = 128,     // of the norm before attention
  kFeedForwardInput = 256,   // of the norm before a feed-forward layer
  kProjectedInputs = 512,    // queries, keys and values
  kAttentionOutput = 1024,   // the input of the projection after attention
  kExpertRows = 2048,        // inputs of experts
  kExpertActivation = 4096,  // both sides of their activation
  // What torchtitan's per-op recomputation does not keep (torch_list.h).
  kNotKeptByOp = 8192,
};

// One kernel of a rank and microbatch. Each reads its inputs and writes its outputs once.
struct KernelCost {
  std::string_view name;
  double flops = 0;     // as the graph compiler counts them, with causal attention in full
  double skipped = 0;   // of these, the ones of masked scores, which fused attention never computes
  double bytes = 0;     // read from and written to the device's memory
  double sent = 0;      // bytes that the rank sends to the others that divide the layer
  double routed = 0;    // bytes that it sends to the ranks that have other experts
  int collectives = 0;  // that send these bytes, each with a latency
  double shared = 0;    // bytes that it sends to the ranks that have other tokens of the samples
  bool is_linear = false;  // whether quantized formats compute it in 8 or 4 bits
  int modules = 0;
  double kernels = 1;     // that launch in its place
  double efficiency = 1;  // relative to the matmuls of its precision
  double depth = 0;       // of a matmul: length of its inner dimension; 0: its start costs nothing
  std::optional<Precision> precision = {};  // of a matmul; empty: as `is_linear` says
  double host = 0;  // seconds of the host without launches, hidden by the device and by messages
  // What `routed` is if a node gets each token at most once: bytes of one copy of all tokens, and
  // the experts of a token. 0: all of `routed` is sent.
  double routed_once = 0;
  double choices = 0;
  double hidden_by = 0;  // FLOPs of a concurrent matmul, under which its messages run
  double exposed = 1;    // part of its messages that compute does not hide
  double gathered = 0;   // bytes that it gets from the ranks that have other experts, all of theirs
};
using Kernels = std::vector<KernelCost>;

struct Work {
  Kernels forward, backward_input, backward_weight;
};
void Append(const Kernels& from, Kernels& to);
void Append(const Work& from, Work& to);

// The work of the parts of one block, each with its norm and its addition to the residual stream.
Work AttentionWork(const ModelShape& shape, std::int64_t layer, const Microbatch& batch);
Work FeedForwardWork(const ModelShape& shape, std::int64_t layer, const Microbatch& batch);
Work MambaWork(const ModelShape& shape, const Microbatch& batch);
Work DeltaWork(const ModelShape& shape, const Microbatch& batch);
// What a layer that predicts a further token computes in addition to its block.
Work PredictorWork(const ModelShape& shape, const Microbatch& batch);
Work EmbeddingWork(const ModelShape& shape, const Microbatch& batch);
Work FinalNormWork(const ModelShape& shape, const Microbatch& batch);
// The work of the head and the loss.
Work LogitsWork(const ModelShape& shape, const Microbatch& batch);

// The part of the scores among a sample's own tokens that is not masked. A window of 0 is all.
double UnmaskedScores(const Microbatch& batch, std::int64_t window);

double FlopsOf(const Kernels& kernels);
double BytesOf(const Kernels& kernels);

}  // namespace penstock
