#include "cost_model/kept_tensors.h"

#include "cost_model/layer_work.h"
#include "cost_model/rank_sizes.h"

namespace penstock {
namespace {

// Adds tensors by their number of elements.
class KeptList {
 public:
  explicit KeptList(const Microbatch& batch) : element_(batch.element_bytes()) {}

  // Tensors that are added from now on are freed if these modules are computed again.
  void Within(int modules) { modules_ = modules; }

  // In the microbatch's precision.
  void Add(std::string_view name, Kept kept, double elements) {
    tensors_.push_back({name, kept, elements * element_, modules_});
  }
  void AddFp32(std::string_view name, Kept kept, double elements) {
    tensors_.push_back({name, kept, elements * kFp32ElementBytes, modules_});
  }
  void AddInt64(std::string_view name, Kept kept, double elements) {
    tensors_.push_back({name, kept, elements * kInt64ElementBytes, modules_});
  }
  KeptTensors Take() { return std::move(tensors_); }

 private:
  double element_;
  int modules_ = 0;
  KeptTensors tensors_;
};

// RMSNorm or LayerNorm of `rows` rows, without its output. In bf16, its fp32 input is a copy.
void AddNormTensors(double rows, double width, KeptList& list) {
  list.AddFp32("norm: input, or centered input", Kept::kUntilInput, rows * width);
  list.AddFp32("norm: 1 / deviation", Kept::kUntilInput, rows);
  list.Add("norm: normalized input", Kept::kUntilWeight, rows * width);
  list.Add("norm: gradient of the output", Kept::kFromInput, rows * width);
}

// A norm whose output is the input of matmuls, which keep `kept` rows of it.
void AddNormOfMatmuls(double rows, double kept, double width, KeptList& list) {
  AddNormTensors(rows, width, list);
  list.Within(kNorm);
  list.Add("norm: output", Kept::kUntilWeight, kept * width);
  list.Within(0);
}

// Likewise, of hidden states.
void AddNormOfHidden(const ModelShape& shape, const Microbatch& batch, KeptList& list) {
  AddNormOfMatmuls(batch.tokens_of_rank(), batch.kept_tokens(), static_cast<double>(shape.dim),
                   list);
}

// The projection back to hidden states reads the gradient of the residual stream: of all tokens, if
// ranks gather them once. Its bias, which ranks have for their own tokens, reads the gradient of
// these.
void AddResidualGradient(const ModelShape& shape, const Microbatch& batch, KeptList& list) {
  const bool gathers = batch.profile.get().gathers_once;
  const auto dim = static_cast<double>(shape.dim);
  const double tokens = batch.tokens(), own = batch.tokens_of_rank();
  list.Add("gradient of the residual stream", Kept::kFromInput, (gathers ? tokens : own) * dim);
  if (shape.architecture == Architecture::kGpt2 && gathers && own < tokens) {
    list.Add("gradient of the rank's tokens", Kept::kFromInput, own * dim);
  }
}

// The gradient of the rank's tokens is a view of the gradient of all tokens, where all ranks
// compute the same.
void AddGatheredGradient(const ModelShape& shape, const Microbatch& batch, KeptList& list) {
  if (!batch.profile.get().gathers_once) return;
  list.Add("gradient of other ranks' tokens", Kept::kFromInput,
           (batch.tokens() - batch.tokens_of_rank()) * static_cast<double>(shape.dim));
}

void AddPlainAttention(const ModelShape& shape, const Microbatch& batch, KeptList& list) {
  const RankSizes sizes(shape, batch);
  const double tokens = batch.tokens();
  const double queries = tokens * sizes.heads * sizes.head_dim;
  const double keys = tokens * sizes.kv_heads * sizes.head_dim;
  if (shape.qk_norm) {
    AddNormTensors(tokens * sizes.heads, sizes.head_dim, list);
    AddNormTensors(tokens * sizes.kv_heads, sizes.head_dim, list);
  }
  // Each head has its copy of shared keys and values, unless all heads share the same.
  const double copies = sizes.kv_heads == 1 ? keys : queries;
  list.Add("attention: queries", Kept::kUntilInput, queries);
  list.Add("attention: keys", Kept::kUntilInput, copies);
  list.Add("attention: values", Kept::kUntilInput, copies);
  list.Within(kCoreAttention);
  list.AddFp32("attention: log-sum-exp", Kept::kUntilInput, tokens * sizes.heads);
  list.Within(0);
  list.Add("attention: output", Kept::kUntilWeight, queries);
  list.Add("gradient of projected queries", Kept::kFromInput, queries);
  list.Add("gradient of projected keys", Kept::kFromInput, keys);
  list.Add("gradient of projected values", Kept::kFromInput, keys);
}

void AddLatentQueries(const LatentShape& latent, const Microbatch& batch, KeptList& list) {
  const double tokens = batch.tokens();
  const auto rank = static_cast<double>(latent.query_rank);
  if (latent.query_rank == 0) return;
  AddNormOfMatmuls(tokens, tokens, rank, list);
  list.Add("gradient of latent queries", Kept::kFromInput, tokens * rank);
}

void AddLatentAttention(const ModelShape& shape, const Microbatch& batch, KeptList& list) {
  const LatentShape& latent = *shape.latent;
  const double tokens = batch.tokens();
  const double per_head = tokens * RankSizes(shape, batch).heads;
  const auto rank = static_cast<double>(latent.kv_rank);
  const auto rotary = static_cast<double>(latent.rotary_dim);
  const double queries = per_head * static_cast<double>(latent.query_dim());
  const double values = per_head * static_cast<double>(latent.value_dim);
  const double up = per_head * static_cast<double>(latent.plain_dim + latent.value_dim);
  AddLatentQueries(latent, batch, list);
  AddNormOfMatmuls(tokens, tokens, rank, list);
  // In fp32, the norm's input is part of the projection, which also has the rotary keys.
  if (batch.precision == Precision::kFp32) {
    list.Add("rotary keys", Kept::kUntilInput, tokens * rotary);
  }
  // Fused attention needs values as long as the keys, so that shorter ones are padded.
  const bool pads = latent.value_dim < latent.query_dim();
  list.Within(kLatentUp);
  list.Add("attention: queries", Kept::kUntilInput, queries);
  list.Add("attention: keys", Kept::kUntilInput, queries);
  list.Add("attention: values", Kept::kUntilInput, pads ? queries : up);
  list.Within(kCoreAttention);
  list.AddFp32("attention: log-sum-exp", Kept::kUntilInput, per_head);
  if (pads) list.Add("attention: padded output", Kept::kUntilInput, queries);
  list.Within(0);
  list.Add("attention: output", Kept::kUntilWeight, values);
  list.Add("gradient of projected queries", Kept::kFromInput, queries);
  list.Add("gradient of projected keys and values", Kept::kFromInput, up);
  list.Add("gradient of latent keys and values", Kept::kFromInput, tokens * (rank + rotary));
}

void AddGpt2Attention(const ModelShape& shape, const Microbatch& batch, KeptList& list) {
  const RankSizes sizes(shape, batch);
  const double tokens = batch.tokens(), queries = tokens * sizes.heads * sizes.head_dim;
  list.Add("attention: queries, keys and values", Kept::kUntilInput, 3 * queries);
  list.Within(kCoreAttention);
  list.AddFp32("attention: log-sum-exp", Kept::kUntilInput, tokens * sizes.heads);
  list.Within(0);
  list.Add("attention: output", Kept::kUntilWeight, queries);
  list.Add("gradient of queries, keys and values", Kept::kFromInput, 3 * queries);
}

// w2 of an activation of w1 x in these modules, without a gate.
void AddUngated(double rows, double hidden, int modules, KeptList& list) {
  list.Within(modules);
  list.Add("activation: input", Kept::kUntilInput, rows * hidden);
  list.Within(modules | kActivation);
  list.Add("activation: output", Kept::kUntilWeight, rows * hidden);
  list.Within(0);
  list.Add("activation: gradient of the input", Kept::kFromInput, rows * hidden);
}

// w2(silu(w1 x) * w3 x) of `rows` rows, without the input and the gradient of the output.
void AddSwiGlu(double rows, double hidden, int modules, KeptList& list) {
  list.Within(modules);
  list.Add("swiglu: w1 x", Kept::kUntilInput, rows * hidden);
  list.Add("swiglu: w3 x", Kept::kUntilInput, rows * hidden);
  list.Within(modules | kActivation);
  list.Add("swiglu: silu(w1 x)", Kept::kUntilInput, rows * hidden);
  list.Add("swiglu: product", Kept::kUntilWeight, rows * hidden);
  list.Within(0);
  list.Add("swiglu: gradient of w1 x", Kept::kFromInput, rows * hidden);
  list.Add("swiglu: gradient of w3 x", Kept::kFromInput, rows * hidden);
}

void AddGelu(const ModelShape& shape, const Microbatch& batch, KeptList& list) {
  const double elements = batch.tokens() * RankSizes(shape, batch).hidden;
  list.Within(kFeedForward);
  list.Add("gelu: input", Kept::kUntilInput, elements);
  list.Within(kFeedForward | kActivation);
  list.Add("gelu: output", Kept::kUntilWeight, elements);
  list.Within(0);
  list.Add("gelu: gradient of the input", Kept::kFromInput, elements);
}

// The scores and choices of the router, all in fp32 and int64.
void AddRouter(const ModelShape& shape, const Microbatch& batch, KeptList& list) {
  const ExpertShape& experts = *shape.experts;
  const double tokens = batch.routed_tokens();
  const auto count = static_cast<double>(experts.experts);
  const double choices = tokens * static_cast<double>(experts.top_k);
  if (batch.precision != Precision::kFp32) {
    list.AddFp32("router: weight in fp32", Kept::kUntilInput,
                 count * static_cast<double>(shape.dim));
    list.AddFp32("router: input in fp32", Kept::kUntilWeight,
                 tokens * static_cast<double>(shape.dim));
  }
  list.AddFp32("router: scores", Kept::kUntilInput, tokens * count);
  list.AddFp32("router: gradient of logits", Kept::kFromInput, tokens * count);
  list.AddInt64("router: chosen experts", Kept::kUntilInput, choices);
  list.AddInt64("router: choice of each row", Kept::kUntilInput, choices);
  list.AddInt64("router: row of each choice", Kept::kUntilInput, choices);
  list.AddInt64("router: rows per expert", Kept::kUntilWeight, count);
  list.AddFp32("router: weights", Kept::kUntilInput, choices);
  if (experts.normalizes) {
    list.AddFp32("router: scores of chosen experts", Kept::kUntilInput, choices);
    list.AddFp32("router: their sum", Kept::kUntilInput, tokens);
  }
  if (experts.balance == ExpertShape::Balance::kLoss) {
    list.AddFp32("balance loss: rows per expert", Kept::kUntilInput, count);
    list.AddFp32("balance loss: sum of scores", Kept::kUntilInput, tokens);
  } else if (experts.balance == ExpertShape::Balance::kBias) {
    list.AddFp32("balance bias: its gradient", Kept::kUntilWeight, count);
  }
}

void AddExperts(const ModelShape& shape, const Microbatch& batch, KeptList& list) {
  const ExpertShape& experts = *shape.experts;
  const auto dim = static_cast<double>(shape.dim);
  const double rows = batch.expert_tokens() * static_cast<double>(experts.top_k);
  const auto add = shape.gated ? &AddSwiGlu : &AddUngated;
  const double width = experts.latent > 0 ? static_cast<double>(experts.latent) : dim;
  AddNormTensors(batch.tokens_of_rank(), dim, list);
  if (experts.shared == 0) AddGatheredGradient(shape, batch, list);
  list.Within(kExpertsModule);
  AddRouter(shape, batch, list);
  list.Add("experts: rows", Kept::kUntilWeight, rows * width);
  add(rows, static_cast<double>(experts.hidden) / static_cast<double>(batch.expert_division()),
      kExpertsModule, list);
  list.Within(kExpertsModule);
  list.Add("experts: output", Kept::kUntilInput, rows * width);
  list.Within(0);
  list.Add("experts: gradient of the output", Kept::kFromInput, rows * width);
  // In bf16, only shared experts read the norm's output; the others read rows of it.
  if (experts.shared > 0 || batch.precision == Precision::kFp32) {
    list.Add("norm: output", Kept::kUntilWeight, batch.kept_tokens() * dim);
  }
  if (experts.shared == 0) return;
  add(batch.tokens(), RankSizes::Share(experts.shared_width(), batch),
      kExpertsModule | kSharedExperts, list);
  AddResidualGradient(shape, batch, list);
}

double SumOf(const KeptTensors& tensors, Kept without) {
  double bytes = 0;
  for (const KeptTensor& tensor : tensors) bytes += tensor.kept == without ? 0 : tensor.bytes;
  return bytes;
}

}  // namespace

KeptTensors KeptByAttention(const ModelShape& shape, const Microbatch& batch) {
  KeptList list(batch);
  AddNormOfHidden(shape, batch, list);
  if (shape.latent) {
    AddLatentAttention(shape, batch, list);
    AddGatheredGradient(shape, batch, list);
  } else if (shape.architecture == Architecture::kGpt2) {
    AddGpt2Attention(shape, batch, list);
  } else {
    AddPlainAttention(shape, batch, list);
  }
  AddResidualGradient(shape, batch, list);
  return list.Take();
}

KeptTensors KeptByFeedForward(const ModelShape& shape, std::int64_t layer,
                              const Microbatch& batch) {
  KeptList list(batch);
  if (shape.has_experts(layer)) {
    AddExperts(shape, batch, list);
    return list.Take();
  }
  AddNormOfHidden(shape, batch, list);
  if (shape.architecture == Architecture::kGpt2) {
    AddGelu(shape, batch, list);
  } else {
    (shape.gated ? AddSwiGlu : AddUngated)(batch.tokens(), RankSizes(shape, batch).hidden,
                                           kFeedForward, list);
  }
  AddResidualGradient(shape, batch, list);
  return list.Take();
}

KeptTensors KeptByMamba(const ModelShape& shape, const Microbatch& batch) {
  KeptList list(batch);
  const MambaShape& mamba = *shape.mamba;
  const double tokens = batch.tokens(), tensor = static_cast<double>(batch.tensor);
  const double inner = tokens * static_cast<double>(mamba.inner()) / tensor;
  const double states = 2 * tokens * static_cast<double>(mamba.groups * mamba.state) / tensor;
  AddNormOfHidden(shape, batch, list);
  list.Add("mamba: projected input", Kept::kUntilInput, 2 * inner + states);
  list.Add("mamba: convolved input", Kept::kUntilInput, inner + states);
  list.Add("mamba: output of the scan", Kept::kUntilInput, inner);
  list.Add("mamba: gated output", Kept::kUntilWeight, inner);
  list.Add("gradient of the projected input", Kept::kFromInput, 2 * inner + states);
  AddResidualGradient(shape, batch, list);
  return list.Take();
}

KeptTensors KeptByDelta(const ModelShape& shape, const Microbatch& batch) {
  KeptList list(batch);
  const DeltaShape& delta = *shape.delta;
  const double keys = batch.tokens() * RankSizes::Share(delta.keys(), batch);
  const double values = batch.tokens() * RankSizes::Share(delta.values(), batch);
  AddNormOfHidden(shape, batch, list);
  list.Add("delta: projected input", Kept::kUntilInput, 2 * keys + 2 * values);
  list.Add("delta: convolved input", Kept::kUntilInput, 2 * keys + values);
  list.Add("delta: output of the rule", Kept::kUntilInput, values);
  list.Add("delta: gated output", Kept::kUntilWeight, values);
  list.Add("gradient of the projected input", Kept::kFromInput, 2 * keys + 2 * values);
  AddResidualGradient(shape, batch, list);
  return list.Take();
}

KeptTensors KeptByEmbedding(const Microbatch& batch) {
  KeptList list(batch);
  list.AddInt64("token ids", Kept::kUntilWeight, batch.tokens());
  return list.Take();
}

KeptTensors KeptByFinalNorm(const ModelShape& shape, const Microbatch& batch) {
  KeptList list(batch);
  AddNormOfHidden(shape, batch, list);
  return list.Take();
}

KeptTensors KeptByLogits(const ModelShape& shape, const Microbatch& batch) {
  KeptList list(batch);
  const double logits = batch.tokens() * RankSizes(shape, batch).vocabulary;
  list.AddFp32("loss: log-softmax", Kept::kUntilInput, logits);
  list.AddInt64("loss: targets", Kept::kUntilInput, batch.tokens());
  list.AddFp32("loss: sum of weights", Kept::kUntilInput, 1);
  list.Add("gradient of logits", Kept::kFromInput, logits);
  return list.Take();
}

double KeptFromForward(const KeptTensors& tensors) { return SumOf(tensors, Kept::kFromInput); }

double KeptAfterInput(const KeptTensors& tensors) { return SumOf(tensors, Kept::kUntilInput); }

}  // namespace penstock
