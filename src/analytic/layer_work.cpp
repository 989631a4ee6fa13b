#include "analytic/layer_work.h"

#include "analytic/rank_sizes.h"

namespace penstock {
namespace {

// Adds kernels to F, I and W.
class WorkList {
 public:
  explicit WorkList(const Microbatch& batch)
      : element_(batch.element_bytes()), tensor_(static_cast<double>(batch.tensor)) {}

  // `rows` rows [in] by matrices [out, in]. If there are several, each row belongs to one of them.
  // W adds to gradients in fp32.
  void Matmul(std::string_view name, double rows, double in, double out, double matrices = 1) {
    const double flops = 2 * rows * in * out;
    const double activations = rows * (in + out) * element_;
    const double weights = matrices * in * out;
    AddForward({name, flops, 0, activations + weights * element_});
    AddInput({name, flops, 0, activations + weights * element_});
    AddWeight({name, flops, 0, activations + weights * 2 * kFp32ElementBytes});
  }

  // Fused causal attention (Dao et al., FlashAttention, 2022), whose backward computes the scores
  // again: 2 products of the sizes of queries and keys in F, and 5 in I. Half of the scores among
  // the tokens themselves are masked, and none of those with earlier slices.
  void Attention(const Microbatch& batch, double heads, double head_dim) {
    const double own = 2 * batch.tokens() * static_cast<double>(batch.sequence) * heads * head_dim;
    const double reach =
        1 + static_cast<double>(batch.earlier) / static_cast<double>(batch.sequence);
    const double queries = batch.tokens() * heads * head_dim * element_, keys = queries * reach;
    AddForward({"attention", 2 * own * reach, own, 2 * (queries + keys)});
    AddInput({"attention", 5 * own * reach, 2.5 * own, 4 * (queries + keys)});
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
  // W gathers the input again, because a rank saves only its part.
  void Exchange(std::string_view name, double elements, int forward, int input, int weight) {
    const double sent = elements * element_ * (tensor_ - 1) / tensor_;
    if (sent == 0) return;
    AddForward({name, 0, 0, 0, forward * sent, 0, forward});
    AddInput({name, 0, 0, 0, input * sent, 0, input});
    AddWeight({name, 0, 0, 0, weight * sent, 0, weight});
  }

  // Tokens go to the ranks of their experts and back, and so do gradients.
  void Route(double elements, double ranks) {
    const double routed = 2 * elements * element_ * (ranks - 1) / ranks;
    if (routed == 0) return;
    AddForward({"all-to-all", 0, 0, 0, 0, routed, 2});
    AddInput({"all-to-all", 0, 0, 0, 0, routed, 2});
  }

  void AddForward(const KernelCost& kernel) { work_.forward.push_back(kernel); }
  void AddInput(const KernelCost& kernel) { work_.backward_input.push_back(kernel); }
  void AddWeight(const KernelCost& kernel) { work_.backward_weight.push_back(kernel); }
  Work Take() { return std::move(work_); }

 private:
  double element_;
  double tensor_;
  Work work_;
};

void AddPlainAttention(const ModelShape& shape, const Microbatch& batch, WorkList& list) {
  const RankSizes sizes(shape, batch);
  const double tokens = batch.tokens();
  const double queries = sizes.heads * sizes.head_dim, keys = sizes.kv_heads * sizes.head_dim;
  list.Matmul("wq", tokens, sizes.dim, queries);
  list.Matmul("wk", tokens, sizes.dim, keys);
  list.Matmul("wv", tokens, sizes.dim, keys);
  if (shape.qk_norm) list.Norm(tokens, queries + keys);
  list.Pointwise("rotary positions", tokens * (queries + keys), 2, 2);
  list.Attention(batch, sizes.heads, sizes.head_dim);
  list.Matmul("wo", tokens, queries, sizes.dim);
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
    list.Matmul("wq", tokens, sizes.dim, queries);
  } else {
    list.Matmul("wq_a", tokens, sizes.dim, query_rank);
    list.Norm(tokens, query_rank);
    list.Matmul("wq_b", tokens, query_rank, queries);
  }
  list.Matmul("wkv_a", tokens, sizes.dim, rank + rotary);
  list.Norm(tokens, rank);
  list.Matmul("wkv_b", tokens, rank, up);
  list.Pointwise("rotary positions, and joining of parts", tokens * 2 * queries, 2, 2);
  list.Attention(batch, sizes.heads, static_cast<double>(latent.query_dim()));
  list.Matmul("wo", tokens, values, sizes.dim);
}

void AddGpt2Attention(const ModelShape& shape, const Microbatch& batch, WorkList& list) {
  const RankSizes sizes(shape, batch);
  const double queries = sizes.heads * sizes.head_dim;
  list.Matmul("wqkv", batch.tokens(), sizes.dim, 3 * queries);
  list.Attention(batch, sizes.heads, sizes.head_dim);
  list.Matmul("wo", batch.tokens(), queries, sizes.dim);
}

// `matrices` experts, or one layer.
void AddSwiGlu(double rows, double dim, double hidden, double matrices, WorkList& list) {
  list.Matmul("w1", rows, dim, hidden, matrices);
  list.Matmul("w3", rows, dim, hidden, matrices);
  list.Pointwise("silu and product", rows * hidden, 3, 5);
  list.Matmul("w2", rows, hidden, dim, matrices);
}

void AddGelu(const ModelShape& shape, const Microbatch& batch, WorkList& list) {
  const RankSizes sizes(shape, batch);
  list.Matmul("w1", batch.tokens(), sizes.dim, sizes.hidden);
  list.Pointwise("gelu", batch.tokens() * sizes.hidden, 2, 3);
  list.Matmul("w2", batch.tokens(), sizes.hidden, sizes.dim);
}

void AddExperts(const ModelShape& shape, const Microbatch& batch, WorkList& list) {
  const ExpertShape& experts = *shape.experts;
  const auto dim = static_cast<double>(shape.dim), count = static_cast<double>(experts.experts);
  const double tokens = batch.tokens(), rows = tokens * static_cast<double>(experts.top_k);
  list.Matmul("router", batch.tokens_of_rank(), dim, count);
  list.Pointwise("rows of experts", rows * dim, 2, 2);
  const auto ranks = static_cast<double>(batch.expert);
  list.Route(rows / static_cast<double>(batch.tensor) * dim, ranks);
  AddSwiGlu(rows, dim, RankSizes::Share(experts.hidden, batch), count / ranks, list);
  list.Pointwise("weighted sum of rows", rows * dim, 1, 2);
  if (experts.shared == 0) return;
  AddSwiGlu(tokens, dim, RankSizes::Share(experts.shared * experts.hidden, batch), 1, list);
}

// What surrounds each branch of a block.
void AddBranch(const ModelShape& shape, const Microbatch& batch, WorkList& list) {
  const auto dim = static_cast<double>(shape.dim);
  list.Norm(batch.tokens_of_rank(), dim);
  list.Pointwise("addition to the residual stream", batch.tokens_of_rank() * dim, 3, 3);
  list.Exchange("exchange of hidden states", batch.tokens() * dim, 2, 2, 1);
}

}  // namespace

Work AttentionWork(const ModelShape& shape, const Microbatch& batch) {
  WorkList list(batch);
  AddBranch(shape, batch, list);
  if (shape.latent) {
    AddLatentAttention(shape, batch, list);
  } else if (shape.architecture == Architecture::kGpt2) {
    AddGpt2Attention(shape, batch, list);
  } else {
    AddPlainAttention(shape, batch, list);
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
    AddSwiGlu(batch.tokens(), sizes.dim, sizes.hidden, 1, list);
  }
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
