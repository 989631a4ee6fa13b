#include "cost_model/implementations/penstock_collectives.h"

#include "cost_model/rank_sizes.h"

namespace penstock {
namespace {

// Adds collectives over the ranks of `tensor`. `elements` are the ones of the whole tensor.
class CollectiveList {
 public:
  CollectiveList(const ModelShape& shape, const Microbatch& batch, Work& work)
      : batch_(batch),
        element_(batch.element_bytes()),
        hidden_(batch.tokens() * static_cast<double>(shape.dim)),
        work_(work) {
    for (Kernels* kernels : {&work.forward, &work.backward_input, &work.backward_weight}) {
      std::erase_if(*kernels, [](const KernelCost& kernel) { return kernel.sent > 0; });
    }
  }

  // All tokens of hidden states for the ranks' parts of a layer. The gradient is the sum of what
  // they compute. Without a division of the tokens, only the gradient needs a collective.
  void Share() {
    if (!batch_.sequence_parallel) return AllReduce(work_.backward_input, hidden_);
    Gather(work_.forward, hidden_);
    Scatter(work_.backward_input, hidden_);
    GatherAgain();
  }
  // All tokens for what all ranks compute alike, so that their gradients are equal. `in_weight`:
  // whether W reads them, too.
  void GatherTokens(bool in_weight = true) {
    if (!batch_.sequence_parallel) return;
    Gather(work_.forward, hidden_);
    if (in_weight) GatherAgain();
  }
  // The sum of the ranks' results, of which each rank has its tokens.
  void Sum() {
    if (!batch_.sequence_parallel) return AllReduce(work_.forward, hidden_);
    Scatter(work_.forward, hidden_);
    Gather(work_.backward_input, hidden_);
  }
  // The results of the same two calls, in one forward. Their gradients are one tensor, which is
  // gathered once.
  void SumTwice() {
    if (!batch_.sequence_parallel) return AllReduce(work_.forward, hidden_, 2);
    Sum();
    Scatter(work_.forward, hidden_);
  }
  // What all ranks have, with gradients that they add.
  void AddGradients(double width) { AddGradients(width, element_); }
  void AddGradients(double width, double element_bytes) {
    Add(work_.backward_input, 2 * batch_.tokens() * width * element_bytes);
  }
  // The gradient of a tensor that Share() or GatherTokens() gathered already.
  void AddGradientsOfShared() {
    if (!batch_.sequence_parallel) return AllReduce(work_.backward_input, hidden_);
    Scatter(work_.backward_input, hidden_);
  }
  // The maximum and two sums of each row of logits.
  void CrossEntropy() {
    const double rows = batch_.tokens() * kFp32ElementBytes;
    Add(work_.forward, rows * static_cast<double>(batch_.tensor));
    Add(work_.forward, 2 * 2 * rows);
  }

 private:
  void Gather(Kernels& kernels, double elements) { Add(kernels, elements * element_); }
  void Scatter(Kernels& kernels, double elements) { Add(kernels, elements * element_); }
  void AllReduce(Kernels& kernels, double elements, int times = 1) {
    for (int i = 0; i < times; ++i) Add(kernels, 2 * elements * element_);
  }
  void GatherAgain() {
    if (batch_.gather_again) Gather(work_.backward_weight, hidden_);
  }
  // `bytes` are what all ranks have of it together.
  void Add(Kernels& kernels, double bytes) const {
    const auto tensor = static_cast<double>(batch_.tensor);
    kernels.push_back({.name = "collective of `tensor`",
                       .sent = bytes * (tensor - 1) / tensor,
                       .collectives = 1});
  }

  const Microbatch& batch_;
  double element_, hidden_;
  Work& work_;
};

void AddLatentAttention(const LatentShape& latent, double dim, CollectiveList& list) {
  list.GatherTokens();
  list.AddGradients(latent.query_rank == 0 ? dim : static_cast<double>(latent.query_rank));
  list.AddGradients(static_cast<double>(latent.rotary_dim));
  list.AddGradients(static_cast<double>(latent.kv_rank));
  list.Sum();
}

// In bf16, only shared experts read the gathered tokens in W; the others read rows of them.
void AddExperts(const ModelShape& shape, const Microbatch& batch, CollectiveList& list) {
  list.GatherTokens(shape.experts->shared > 0 || batch.precision == Precision::kFp32);
  list.AddGradients(static_cast<double>(shape.dim));
  list.AddGradients(static_cast<double>(shape.experts->top_k), kFp32ElementBytes);
  if (shape.experts->shared == 0) return list.Sum();
  list.AddGradientsOfShared();
  list.SumTwice();
}

double NormElements(const ModelShape& shape) {
  return static_cast<double>(shape.dim) * (shape.architecture == Architecture::kGpt2 ? 2 : 1);
}

// The parameters of a layer that ranks with other tokens have.
double UsedBetweenLayers(const ModelShape& shape) {
  const double biases =
      shape.architecture == Architecture::kGpt2 ? 2 * static_cast<double>(shape.dim) : 0;
  return 2 * NormElements(shape) + biases;
}

// The parameters of an attention layer that ranks with other heads have.
double UsedByHeads(const ModelShape& shape, const Microbatch& batch) {
  if (shape.latent) return 0;
  const auto head_dim = static_cast<double>(shape.head_dim);
  const double keys = head_dim * static_cast<double>(shape.kv_heads);
  return (shape.qk_norm ? 2 * head_dim : 0) +
         (shape.kv_heads < batch.tensor ? 2 * static_cast<double>(shape.dim) * keys : 0);
}

}  // namespace

bool CanDivideTokens(const ModelShape& shape, const Microbatch& batch) {
  return RankSizes::DividesVocabulary(shape, batch) && shape.predictors == 0;
}

void SetLayerCollectives(const ModelShape& shape, std::int64_t layer, const Microbatch& batch,
                         Work& work) {
  if (batch.tensor == 1) return;
  using enum LayerKind;
  CollectiveList list(shape, batch, work);
  const LayerKind kind = shape.kind(layer);
  const bool mixes_tokens = kind == kBlock || kind == kAttention || kind == kMamba;
  if (mixes_tokens && shape.latent) {
    AddLatentAttention(*shape.latent, static_cast<double>(shape.dim), list);
  } else if (mixes_tokens) {
    list.Share();
    list.Sum();
  }
  if (shape.has_experts(layer)) {
    AddExperts(shape, batch, list);
  } else if (kind == kBlock || kind == kFeedForward) {
    list.Share();
    list.Sum();
  }
}

void SetEmbeddingCollectives(const ModelShape& shape, const Microbatch& batch, Work& work) {
  if (batch.tensor == 1) return;
  CollectiveList list(shape, batch, work);
  if (RankSizes::DividesVocabulary(shape, batch)) list.Sum();
}

void SetLogitsCollectives(const ModelShape& shape, const Microbatch& batch, Work& work) {
  if (batch.tensor == 1) return;
  CollectiveList list(shape, batch, work);
  if (!RankSizes::DividesVocabulary(shape, batch)) return;
  list.Share();
  list.CrossEntropy();
}

double SummedOncePerStep(const ModelShape& shape, const LayerRange& stage,
                         const Microbatch& batch) {
  if (batch.tensor == 1) return 0;
  const auto layers = static_cast<double>(stage.end - stage.begin);
  double elements = layers * UsedByHeads(shape, batch);
  if (!batch.sequence_parallel) return elements;
  elements += layers * UsedBetweenLayers(shape);
  if (stage.head) elements += NormElements(shape);
  if (stage.embedding) {
    elements += static_cast<double>(shape.positions) * static_cast<double>(shape.dim);
  }
  return elements;
}

}  // namespace penstock
