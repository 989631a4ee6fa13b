#include "cost_model/layer_work.h"

#include <utility>

#include "cost_model/rank_sizes.h"

namespace penstock {
namespace {

// Adds kernels to F, I and W.
class WorkList {
 public:
  explicit WorkList(const Microbatch& batch) : batch_(batch), element_(batch.element_bytes()) {}

  // Kernels that are added from now on belong to these modules.
  void Within(int modules) { modules_ = modules; }

  // `rows` rows [in] by matrices [out, in]. If there are several, each row belongs to one of them.
  // W adds to gradients in fp32. Quantized formats are read instead of `element_`.
  void Linear(std::string_view name, double rows, double in, double out, double matrices = 1) {
    AddMatmul({.name = name, .is_linear = true}, LinearBytes(batch_.precision), rows, in, out,
              matrices);
  }
  // Likewise, but never quantized.
  void Matmul(std::string_view name, double rows, double in, double out) {
    AddMatmul({.name = name}, element_, rows, in, out, 1);
  }

  // Fused causal attention (Dao et al., FlashAttention, 2022), whose backward computes the scores
  // again: 2 products of the sizes of queries and keys in F, and 5 in I. Half of the scores among
  // the tokens themselves are masked, and none of those with earlier slices.
  // With a window, only the scores in it are computed.
  void Attention(double heads, double head_dim, std::int64_t window) {
    const auto sequence = static_cast<double>(batch_.sequence);
    const double own = 2 * batch_.tokens() * sequence * heads * head_dim;
    const double reach = 1 + static_cast<double>(batch_.earlier) / sequence;
    const double masked = own - own * UnmaskedScores(batch_, window);
    const double queries = batch_.tokens() * heads * head_dim * element_, keys = queries * reach;
    const int outside = std::exchange(modules_, modules_ | kCoreAttention);
    AddForward({"attention", 2 * own * reach, 2 * masked, 2 * (queries + keys)});
    AddInput({"attention", 5 * own * reach, 5 * masked, 4 * (queries + keys)});
    modules_ = outside;
  }

  // Ranks that divide the tokens of a sample exchange keys and values of `keys` elements a rank,
  // and in the backward their gradients (Ulysses: also queries and outputs).
  void ExchangeContext(double queries, double keys) {
    const auto ranks = static_cast<double>(batch_.context);
    if (ranks == 1) return;
    const bool ulysses = batch_.context_exchange == ContextExchange::kUlysses;
    const double bytes =
        element_ * (ulysses ? 2 * (queries + keys) * (ranks - 1) / ranks : 2 * keys * (ranks - 1));
    const int steps = batch_.context_exchange == ContextExchange::kRing
                          ? static_cast<int>(batch_.context) - 1
                          : (ulysses ? 4 : 1);
    AddForward({.name = "exchange of keys and values", .collectives = steps, .shared = bytes});
    AddInput(
        {.name = "exchange of keys and values", .collectives = 2 * steps, .shared = 2 * bytes});
  }

  // Tensors of this size that F, I and W read or write.
  void Pointwise(std::string_view name, double elements, double forward, double input,
                 double weight = 0) {
    const double bytes = elements * element_;
    if (forward > 0) AddForward({name, 0, 0, forward * bytes});
    if (input > 0) AddInput({name, 0, 0, input * bytes});
    if (weight > 0) AddWeight({name, 0, 0, weight * bytes});
  }

  void Norm(double rows, double width) { Pointwise("norm", rows * width, 2, 3, 2); }

  // All-gathers and reduce-scatters of hidden states over the ranks that divide the layer. F
  // gathers the input of the first matmuls and scatters the sum of the last; I does the reverse;
  // W gathers the input again, because a rank saves only its part. Without a division of the
  // sequence, F and I have one all-reduce each, which sends as much as both, and W has none.
  void Exchange(std::string_view name, double elements, int forward, int input, int weight) {
    const auto tensor = static_cast<double>(batch_.tensor);
    const double sent = elements * element_ * (tensor - 1) / tensor;
    if (sent == 0) return;
    if (!batch_.sequence_parallel) weight = 0;
    AddForward({name, 0, 0, 0, forward * sent, 0, forward});
    AddInput({name, 0, 0, 0, input * sent, 0, input});
    AddWeight({name, 0, 0, 0, weight * sent, 0, weight});
  }

  // Tokens go to the ranks of their `choices` experts and back, or to all ranks, and so do
  // gradients.
  void Route(double elements, double choices, double ranks) {
    if (ranks == 1) return;
    const double bytes = 2 * elements * element_ * (ranks - 1);
    KernelCost exchange{.name = "all-to-all", .collectives = 2};
    if (batch_.profile.dispatcher == Dispatcher::kAllGather) {
      exchange.gathered = bytes;
    } else {
      exchange.routed = bytes * choices / ranks;
    }
    AddForward(exchange);
    AddInput(exchange);
  }

  void AddForward(const KernelCost& kernel) { Add(kernel, work_.forward); }
  void AddInput(const KernelCost& kernel) { Add(kernel, work_.backward_input); }
  void AddWeight(const KernelCost& kernel) { Add(kernel, work_.backward_weight); }
  Work Take() { return std::move(work_); }

 private:
  void Add(KernelCost kernel, Kernels& kernels) {
    kernel.modules = modules_;
    kernels.push_back(kernel);
  }
  void AddMatmul(KernelCost kernel, double read, double rows, double in, double out,
                 double matrices) {
    kernel.flops = 2 * rows * in * out;
    const double weights = matrices * in * out;
    kernel.bytes = rows * (in * read + out * element_) + weights * read;
    AddForward(kernel);
    kernel.bytes = rows * (in * element_ + out * read) + weights * read;
    AddInput(kernel);
    kernel.bytes = rows * (in + out) * read + weights * 2 * kFp32ElementBytes;
    AddWeight(kernel);
  }

  const Microbatch& batch_;
  double element_;
  int modules_ = 0;
  Work work_;
};

void AddPlainAttention(const ModelShape& shape, std::int64_t layer, const Microbatch& batch,
                       WorkList& list) {
  const RankSizes sizes(shape, batch);
  const double tokens = batch.tokens();
  const double queries = sizes.heads * sizes.head_dim, keys = sizes.kv_heads * sizes.head_dim;
  list.Linear("wq", tokens, sizes.dim, shape.query_gate ? 2 * queries : queries);
  list.Linear("wk", tokens, sizes.dim, keys);
  list.Linear("wv", tokens, sizes.dim, keys);
  if (shape.qk_norm) list.Norm(tokens, queries + keys);
  if (!shape.has_no_positions) {
    list.Pointwise("rotary positions", tokens * (queries + keys), 2, 2);
  }
  list.ExchangeContext(tokens * queries, tokens * 2 * keys);
  list.Attention(sizes.heads, sizes.head_dim, shape.window_of(layer));
  if (shape.query_gate) list.Pointwise("gate", tokens * queries, 3, 5);
  list.Linear("wo", tokens, queries, sizes.dim);
}

void AddLatentAttention(const ModelShape& shape, const Microbatch& batch, WorkList& list) {
  const LatentShape& latent = *shape.latent;
  const RankSizes sizes(shape, batch);
  const double tokens = batch.tokens();
  const auto rank = static_cast<double>(latent.kv_rank);
  const auto query_rank = static_cast<double>(latent.query_rank);
  const auto rotary = static_cast<double>(latent.rotary_dim);
  const double queries = sizes.heads * static_cast<double>(latent.query_dim());
  const double up = sizes.heads * static_cast<double>(latent.plain_dim + latent.value_dim);
  const double values = sizes.heads * static_cast<double>(latent.value_dim);
  if (latent.query_rank == 0) {
    list.Linear("wq", tokens, sizes.dim, queries);
  } else {
    list.Linear("wq_a", tokens, sizes.dim, query_rank);
    list.Norm(tokens, query_rank);
    list.Within(kLatentUp);
    list.Linear("wq_b", tokens, query_rank, queries);
    list.Within(0);
  }
  list.Linear("wkv_a", tokens, sizes.dim, rank + rotary);
  list.Norm(tokens, rank);
  list.Within(kLatentUp);
  list.Linear("wkv_b", tokens, rank, up);
  list.Within(0);
  list.Pointwise("rotary positions, and joining of parts", tokens * 2 * queries, 2, 2);
  list.ExchangeContext(tokens * queries, tokens * (queries + values));
  list.Attention(sizes.heads, static_cast<double>(latent.query_dim()), 0);
  list.Linear("wo", tokens, values, sizes.dim);
}

void AddGpt2Attention(const ModelShape& shape, const Microbatch& batch, WorkList& list) {
  const RankSizes sizes(shape, batch);
  const double queries = sizes.heads * sizes.head_dim;
  list.Linear("wqkv", batch.tokens(), sizes.dim, 3 * queries);
  list.ExchangeContext(batch.tokens() * queries, batch.tokens() * 2 * queries);
  list.Attention(sizes.heads, sizes.head_dim, 0);
  list.Linear("wo", batch.tokens(), queries, sizes.dim);
}

// `matrices` experts, or one layer, of this width, with a gate or without.
void AddFeedForward(const ModelShape& shape, double rows, double dim, double hidden,
                    double matrices, WorkList& list, int modules) {
  list.Within(modules);
  list.Linear("w1", rows, dim, hidden, matrices);
  if (shape.gated) list.Linear("w3", rows, dim, hidden, matrices);
  list.Within(modules | kActivation);
  if (shape.gated) {
    list.Pointwise("silu and product", rows * hidden, 3, 5);
  } else {
    list.Pointwise("activation", rows * hidden, 2, 3);
  }
  list.Within(modules);
  list.Linear("w2", rows, hidden, dim, matrices);
}

void AddGelu(const ModelShape& shape, const Microbatch& batch, WorkList& list) {
  const RankSizes sizes(shape, batch);
  list.Within(kFeedForward);
  list.Linear("w1", batch.tokens(), sizes.dim, sizes.hidden);
  list.Pointwise("gelu", batch.tokens() * sizes.hidden, 2, 3);
  list.Linear("w2", batch.tokens(), sizes.hidden, sizes.dim);
}

void AddExperts(const ModelShape& shape, const Microbatch& batch, WorkList& list) {
  const ExpertShape& experts = *shape.experts;
  const auto dim = static_cast<double>(shape.dim), count = static_cast<double>(experts.experts);
  const double tokens = batch.tokens();
  const auto choices = static_cast<double>(experts.top_k);
  const double rows = batch.expert_tokens() * choices;
  const double width = experts.latent > 0 ? static_cast<double>(experts.latent) : dim;
  list.Within(kExpertsModule);
  list.Matmul("router", batch.routed_tokens(), dim, count);
  if (experts.latent > 0) list.Linear("w_down", batch.tokens_of_rank(), dim, width);
  list.Pointwise("rows of experts", rows * width, 2, 2);
  const auto ranks = static_cast<double>(batch.expert);
  const auto division = static_cast<double>(batch.expert_division());
  list.Route(batch.expert_tokens() / division * width, choices, ranks);
  const double hidden = static_cast<double>(experts.hidden) / division;
  AddFeedForward(shape, rows, width, hidden, count / ranks, list, kExpertsModule);
  list.Pointwise("weighted sum of rows", rows * width, 1, 2);
  if (experts.latent > 0) list.Linear("w_up", batch.tokens_of_rank(), width, dim);
  if (experts.shared == 0) return;
  AddFeedForward(shape, tokens, dim, RankSizes::Share(experts.shared_width(), batch), 1, list,
                 kExpertsModule | kSharedExperts);
}

// Mamba-2 by chunks (Dao and Gu 2024, section 6), whose scan costs little next to the projections:
// within chunks of 256 tokens as attention, between chunks by the heads' states.
void AddMamba(const ModelShape& shape, const Microbatch& batch, WorkList& list) {
  constexpr double kChunk = 256;
  const MambaShape& mamba = *shape.mamba;
  const auto tensor = static_cast<double>(batch.tensor);
  const double tokens = batch.tokens(), inner = static_cast<double>(mamba.inner()) / tensor;
  const double states = static_cast<double>(mamba.groups * mamba.state) / tensor;
  const double heads = static_cast<double>(mamba.heads) / tensor;
  const auto dim = static_cast<double>(shape.dim), state = static_cast<double>(mamba.state);
  list.Linear("in_proj", tokens, dim, 2 * inner + 2 * states + heads);
  list.Pointwise("convolution", tokens * (inner + 2 * states), 2, 4);
  const double scan = tokens * (kChunk * (states + inner) + 4 * inner * state);
  list.AddForward({.name = "scan",
                   .flops = scan,
                   .bytes = tokens * 4 * (inner + states) * batch.element_bytes()});
  list.AddInput({.name = "scan",
                 .flops = 2.5 * scan,
                 .bytes = tokens * 8 * (inner + states) * batch.element_bytes()});
  list.Pointwise("gate and norm", tokens * inner, 3, 5);
  list.Linear("out_proj", tokens, inner, dim);
}

// The delta rule by chunks (Yang et al., Parallelizing Linear Transformers with the Delta Rule,
// 2024, section 3): products of queries, keys and values within chunks of 64 tokens, and between
// chunks with the heads' states.
void AddDelta(const ModelShape& shape, const Microbatch& batch, WorkList& list) {
  constexpr double kChunk = 64;
  const DeltaShape& delta = *shape.delta;
  const auto dim = static_cast<double>(shape.dim), head_dim = static_cast<double>(delta.head_dim);
  const double tokens = batch.tokens(), keys = RankSizes::Share(delta.keys(), batch);
  const double values = RankSizes::Share(delta.values(), batch);
  const double heads = RankSizes::Share(delta.value_heads, batch);
  list.Linear("in_proj", tokens, dim, 2 * keys + 2 * values + 2 * heads);
  list.Pointwise("convolution", tokens * (2 * keys + values), 2, 4);
  const double scan = tokens * values * (6 * head_dim + 6 * kChunk);
  const double bytes = tokens * (2 * keys + 2 * values) * batch.element_bytes();
  list.AddForward({.name = "delta rule", .flops = scan, .bytes = bytes});
  list.AddInput({.name = "delta rule", .flops = 2.5 * scan, .bytes = 2 * bytes});
  list.Pointwise("gate and norm", tokens * values, 3, 5);
  list.Linear("out_proj", tokens, values, dim);
}

// What surrounds each branch of a block.
void AddBranch(const ModelShape& shape, const Microbatch& batch, WorkList& list) {
  const auto dim = static_cast<double>(shape.dim);
  list.Within(kNorm);
  list.Norm(batch.tokens_of_rank(), dim);
  if (shape.norms_outputs) list.Norm(batch.tokens_of_rank(), dim);
  list.Within(0);
  list.Pointwise("addition to the residual stream", batch.tokens_of_rank() * dim, 3, 3);
  list.Exchange("exchange of hidden states", batch.tokens() * dim, 2, 2, 1);
}

}  // namespace

void Append(const Kernels& from, Kernels& to) { to.insert(to.end(), from.begin(), from.end()); }

void Append(const Work& from, Work& to) {
  Append(from.forward, to.forward);
  Append(from.backward_input, to.backward_input);
  Append(from.backward_weight, to.backward_weight);
}

Work AttentionWork(const ModelShape& shape, std::int64_t layer, const Microbatch& batch) {
  WorkList list(batch);
  AddBranch(shape, batch, list);
  if (shape.latent) {
    AddLatentAttention(shape, batch, list);
  } else if (shape.architecture == Architecture::kGpt2) {
    AddGpt2Attention(shape, batch, list);
  } else {
    AddPlainAttention(shape, layer, batch, list);
  }
  return list.Take();
}

Work FeedForwardWork(const ModelShape& shape, std::int64_t layer, const Microbatch& batch) {
  WorkList list(batch);
  AddBranch(shape, batch, list);
  if (shape.has_experts(layer)) {
    AddExperts(shape, batch, list);
  } else if (shape.architecture == Architecture::kGpt2) {
    AddGelu(shape, batch, list);
  } else {
    const RankSizes sizes(shape, batch);
    AddFeedForward(shape, batch.tokens(), sizes.dim, sizes.hidden, 1, list, kFeedForward);
  }
  return list.Take();
}

Work MambaWork(const ModelShape& shape, const Microbatch& batch) {
  WorkList list(batch);
  AddBranch(shape, batch, list);
  AddMamba(shape, batch, list);
  return list.Take();
}

Work DeltaWork(const ModelShape& shape, const Microbatch& batch) {
  WorkList list(batch);
  AddBranch(shape, batch, list);
  AddDelta(shape, batch, list);
  return list.Take();
}

Work PredictorWork(const ModelShape& shape, const Microbatch& batch) {
  WorkList list(batch);
  const auto dim = static_cast<double>(shape.dim);
  list.Norm(2 * batch.tokens_of_rank(), dim);
  list.Linear("eh_proj", batch.tokens(), 2 * dim, dim / static_cast<double>(batch.tensor));
  return list.Take();
}

Work EmbeddingWork(const ModelShape& shape, const Microbatch& batch) {
  WorkList list(batch);
  const double elements = batch.tokens_of_rank() * static_cast<double>(shape.dim);
  list.Pointwise("embedding", elements, 2, 0);
  list.AddWeight({"embedding", 0, 0, elements * (batch.element_bytes() + 2 * kFp32ElementBytes)});
  return list.Take();
}

Work FinalNormWork(const ModelShape& shape, const Microbatch& batch) {
  WorkList list(batch);
  list.Norm(batch.tokens_of_rank(), static_cast<double>(shape.dim));
  return list.Take();
}

Work LogitsWork(const ModelShape& shape, const Microbatch& batch) {
  WorkList list(batch);
  const RankSizes sizes(shape, batch);
  const double logits = batch.tokens() * sizes.vocabulary;
  list.Exchange("exchange of hidden states", batch.tokens() * sizes.dim, 1, 1, 1);
  list.Matmul("head", batch.tokens(), sizes.dim, sizes.vocabulary);
  // The softmax is in fp32.
  const double bytes = logits * (batch.element_bytes() + kFp32ElementBytes);
  list.AddForward({"cross-entropy", 0, 0, bytes});
  list.AddInput({"cross-entropy", 0, 0, bytes});
  return list.Take();
}

double UnmaskedScores(const Microbatch& batch, std::int64_t window) {
  const auto sequence = static_cast<double>(batch.sequence);
  const auto reach = static_cast<double>(window);
  if (window == 0 || reach >= sequence) return 0.5;
  return reach / sequence * (1 - reach / (2 * sequence));
}

double FlopsOf(const Kernels& kernels) {
  double flops = 0;
  for (const KernelCost& kernel : kernels) flops += kernel.flops;
  return flops;
}

double BytesOf(const Kernels& kernels) {
  double bytes = 0;
  for (const KernelCost& kernel : kernels) bytes += kernel.bytes;
  return bytes;
}

}  // namespace penstock
