#include <algorithm>
#include <cmath>
#include <numeric>

#include "cost_model/implementations/implementations.h"
#include "cost_model/implementations/megatron_kept.h"
#include "cost_model/implementations/megatron_overhead.h"
#include "cost_model/implementations/transformer_engine_constants.h"
#include "cost_model/implementations/transformer_engine_list.h"
#include "cost_model/rank_sizes.h"
#include "cost_model/stage_layers.h"

namespace penstock {
namespace transformer_engine {
namespace {

constexpr MegatronKernels kKernels = MegatronKernels::kTransformerEngine;

// The formats of linear layers. Models with latent experts (Nemotron 3 Super and Ultra) are trained
// in NVFP4 with attention and the latent projections in bf16, and Mamba's output in MXFP8
// (Megatron-Bridge, nemotron_3_super_bf16_with_nvfp4_mixed). Their predictors are in bf16.
struct Formats {
  Formats(const ModelShape& shape, std::int64_t layer, const Microbatch& batch)
      : others(IsPlain(shape, layer, batch) ? Precision::kBf16 : batch.precision),
        attention(others),
        latent(others),
        scan_output(others) {
    const bool is_mixed = others == Precision::kNvfp4 && shape.experts && shape.experts->latent > 0;
    if (!is_mixed) return;
    attention = latent = Precision::kBf16;
    scan_output = Precision::kMxfp8;
  }

  static bool IsPlain(const ModelShape& shape, std::int64_t layer, const Microbatch& batch) {
    if (!IsQuantized(batch.precision)) return false;
    if (layer >= shape.layers) return !shape.predictor_pattern.empty();
    return layer >= shape.layers - batch.profile.layers_at_end_in_bf16;
  }

  Precision others, attention, latent, scan_output;
};

// TransformerEngine's matmuls send and receive parts of the sequence (--tp-comm-overlap).
bool OverlapsTensor(const Microbatch& batch) {
  return batch.tensor > 1 && batch.sequence_parallel && batch.precision != Precision::kNvfp4;
}

// Adds the parts of a layer.
class Layer {
 public:
  Layer(const ModelShape& shape, std::int64_t layer, const Microbatch& batch)
      : shape_(shape),
        batch_(batch),
        profile_(batch.profile),
        formats_(shape, layer, batch),
        sizes_(shape, batch),
        list_(batch),
        tokens_(batch.tokens()),
        local_(batch.tokens_of_rank()) {
    list_.Format(formats_.others);
  }

  void AddAttention(std::int64_t layer) {
    AddNorm();
    if (shape_.latent) {
      AddLatentAttention();
    } else {
      AddPlainAttention(shape_.window_of(layer));
    }
    AddExchange(/*is_divided=*/true);
    AddHost(shape_.latent ? kHostLatent * kHostPart : kHostPart);
  }

  void AddDelta() {
    const DeltaShape& delta = *shape_.delta;
    const auto head_dim = static_cast<double>(delta.head_dim);
    const double keys = Share(delta.keys()), values = Share(delta.values());
    constexpr double kChunk = 64;
    AddNorm();
    AddLinear({"in_proj", tokens_, sizes_.dim, 2 * keys + 2 * values});
    list_.Scan("delta rule", tokens_ * values * (6 * head_dim + 6 * kChunk));
    AddLinear({"out_proj", tokens_, values, sizes_.dim});
    AddExchange(true);
    AddHost(kHostPart);
  }

  void AddMamba() {
    const MambaShape& mamba = *shape_.mamba;
    const double inner = Share(mamba.inner()), states = Share(mamba.groups * mamba.state);
    const auto state = static_cast<double>(mamba.state);
    constexpr double kChunk = 128;
    AddNorm();
    AddLinear({"in_proj", tokens_, sizes_.dim, 2 * inner + 2 * states + Share(mamba.heads)});
    list_.Scan("scan", tokens_ * (inner * (4 * state + 2 * kChunk) + states * 2 * kChunk));
    list_.Format(formats_.scan_output);
    AddLinear({"out_proj", tokens_, inner, sizes_.dim});
    list_.Format(formats_.others);
    AddExchange(true);
    AddHost(kHostPart);
  }

  void AddFeedForward(std::int64_t layer) {
    AddNorm();
    if (shape_.has_experts(layer)) {
      AddExperts();
      return;
    }
    AddDense(sizes_.hidden, kFeedForward);
    AddExchange(true);
    AddHost(kHostPart);
  }

  Work Take() { return list_.Take(); }

 private:
  double Share(std::int64_t size) const { return RankSizes::Share(size, batch_); }
  bool is_gated() const { return shape_.gated && shape_.architecture == Architecture::kDecoder; }

  // A linear layer that has an adapter with `lora`.
  void AddLinear(const Matmul& matmul, bool is_qkv = false) {
    list_.Linear(matmul);
    if (profile_.lora && (is_qkv || !profile_.qkv_adapters)) list_.Adapter(matmul);
  }

  void AddNorm() {
    list_.Within(kNorm);
    list_.Passes("norm and residual", local_ * sizes_.dim, kHiddenPasses);
    list_.Within(0);
  }

  void AddPlainAttention(std::int64_t window) {
    const double queries = sizes_.heads * sizes_.head_dim;
    const double keys = sizes_.kv_heads * sizes_.head_dim;
    list_.Format(formats_.attention);
    AddLinear({"qkv", tokens_, sizes_.dim, (shape_.query_gate ? 2 : 1) * queries + 2 * keys}, true);
    list_.Passes("heads", tokens_ * (queries + keys), kHeadPasses);
    AddContext(tokens_ * queries, tokens_ * 2 * keys);
    AddCore(window, sizes_.head_dim, sizes_.head_dim);
    list_.Passes("attention", tokens_ * 2 * (queries + keys), kAttentionPasses);
    AddLinear({"projection", tokens_, queries, sizes_.dim});
    list_.Format(formats_.others);
  }

  void AddLatentAttention() {
    const LatentShape& latent = *shape_.latent;
    const auto rank = static_cast<double>(latent.kv_rank);
    const auto query_rank = static_cast<double>(latent.query_rank);
    const auto query_dim = static_cast<double>(latent.query_dim());
    const auto value_dim = static_cast<double>(latent.value_dim);
    const double queries = sizes_.heads * query_dim, values = sizes_.heads * value_dim;
    const double up = sizes_.heads * static_cast<double>(latent.plain_dim + latent.value_dim);
    AddLinear({"kv_down", tokens_, sizes_.dim, rank + static_cast<double>(latent.rotary_dim)});
    if (query_rank > 0) AddLinear({"q_down", tokens_, sizes_.dim, query_rank});
    list_.Within(kLatentUp);
    AddLinear({"q_up", tokens_, query_rank > 0 ? query_rank : sizes_.dim, queries});
    AddLinear({"kv_up", tokens_, rank, up});
    list_.Passes("heads", tokens_ * (queries + up), kHeadPasses);
    list_.Within(0);
    AddContext(tokens_ * queries, tokens_ * (queries + values));
    AddCore(0, query_dim, value_dim);
    list_.Passes("attention", tokens_ * 2 * (queries + values), kAttentionPasses);
    AddLinear({"projection", tokens_, values, sizes_.dim});
  }

  // F has two products of queries, keys and values; I computes the scores again.
  void AddCore(std::int64_t window, double query_dim, double value_dim) {
    const auto sequence = static_cast<double>(batch_.sequence);
    const double earlier = static_cast<double>(batch_.earlier);
    const double reach = sequence + earlier;
    double computed = sequence / 2 + earlier;
    if (window > 0) computed = std::min(computed, static_cast<double>(window));
    double efficiency = query_dim < 128 ? kSmallHeads : 1;
    if (profile_.fp8_attention && IsQuantized(batch_.precision)) efficiency *= kFp8Attention;
    // Ranks that divide the tokens of a sample compute attention in steps, to the keys of each
    // other.
    const double step = sequence / static_cast<double>(batch_.context);
    efficiency *= step / (step + kAttentionStart);
    const double products = 2 * tokens_ * reach * sizes_.heads;
    list_.Attention(products * (query_dim + value_dim), products * (3 * query_dim + 2 * value_dim),
                    1 - computed / reach, efficiency);
  }

  // Ranks that divide the tokens of a sample pass keys and values on, and gradients back.
  void AddContext(double queries, double keys) {
    const auto ranks = static_cast<double>(batch_.context);
    if (batch_.context == 1) return;
    const bool is_ulysses = batch_.context_exchange == ContextExchange::kUlysses;
    const double bytes =
        2 * (is_ulysses ? 2 * (queries + keys) * (ranks - 1) / ranks : keys * (ranks - 1));
    const KernelCost once{.name = "exchange of keys and values",
                          .collectives = static_cast<int>(batch_.context) - 1,
                          .shared = bytes,
                          .exposed = kContextExposed};
    KernelCost twice = once;
    twice.collectives *= 2;
    twice.shared *= 2;
    list_.AddForward(once);
    list_.AddInput(twice);
  }

  void AddDense(double hidden, int modules) {
    list_.Within(modules);
    AddLinear({"fc1", tokens_, sizes_.dim, (is_gated() ? 2 : 1) * hidden});
    list_.Within(modules | kActivation);
    list_.Passes("activation", tokens_ * hidden, is_gated() ? kGatePasses : kActivationPasses);
    list_.Within(modules);
    AddLinear({"fc2", tokens_, hidden, sizes_.dim});
    list_.Within(0);
  }

  void AddExperts() {
    const ExpertShape& experts = *shape_.experts;
    const auto count = static_cast<double>(experts.experts);
    const auto latent = static_cast<double>(experts.latent);
    const auto local_experts = count / static_cast<double>(batch_.expert);
    list_.Within(kExpertsModule);
    list_.Format(Precision::kBf16);
    list_.Linear({"router", local_, sizes_.dim, count});
    list_.Format(formats_.latent);
    if (latent > 0) list_.Linear({"latent_down", local_, sizes_.dim, latent});
    if (latent > 0) list_.Linear({"latent_up", local_, latent, sizes_.dim});
    list_.Format(formats_.others);
    AddRows(latent > 0 ? latent : sizes_.dim, local_experts);
    const std::int64_t shared = experts.shared_width();
    if (shared > 0) AddDense(Share(shared), kExpertsModule | kSharedExperts);
    AddExchange(/*is_divided=*/shared > 0);
    list_.Within(0);
    double host = kHostExperts + (shared > 0 ? kHostPart : 0);
    if (!profile_.fused_experts) host += kHostExpert * local_experts;
    if (sends_copies()) host += kHostCounts;
    AddHost(profile_.drops_tokens ? host * kHostDropping : host);
  }

  // Whether a rank gets a token as often as it has experts for it.
  bool sends_copies() const {
    return profile_.dispatcher == Dispatcher::kAllToAll ||
           profile_.dispatcher == Dispatcher::kAllGather;
  }

  void AddRows(double width, double local_experts) {
    const ExpertShape& experts = *shape_.experts;
    const auto division = static_cast<double>(batch_.expert_division());
    const double rows = batch_.expert_tokens() * static_cast<double>(experts.top_k);
    const double hidden = static_cast<double>(experts.hidden) / division;
    const bool fused = profile_.fused_experts;
    AddDispatch(batch_.expert_tokens() / division, width);
    double passes = fused ? kRowPassesFused : kRowPasses;
    // Rows arrive by rank. They are ordered by expert if a rank has several.
    if (sends_copies() && local_experts > 1) passes += kAllToAllPasses;
    // HybridEP pads rows for the blocks of scales as it receives them.
    const bool pads = profile_.dispatcher != Dispatcher::kHybridEp && !profile_.drops_tokens;
    if (IsQuantized(formats_.others) && pads) passes += kPaddingPasses;
    list_.Passes("rows of experts", rows * width, passes);
    list_.Linear(
        {"experts' fc1", rows, width, (is_gated() ? 2 : 1) * hidden, local_experts, true, hidden});
    list_.Within(kExpertsModule | kActivation);
    double gate = is_gated() ? kExpertGatePasses : kExpertActivationPasses;
    if (fused) gate = kExpertGatePassesFused;
    list_.Passes("experts' activation", rows * hidden, gate);
    list_.Within(kExpertsModule);
    if (experts.biases) list_.Passes("experts' biases", rows * hidden, kExpertBiasPasses);
    list_.Linear({"experts' fc2", rows, hidden, width, local_experts, true, hidden});
  }

  // The ranks that have experts of a token, in the mean.
  double RanksOfToken() const {
    const auto ranks = static_cast<double>(batch_.expert);
    const std::int64_t top_k = shape_.experts->top_k;
    if (!profile_.consecutive_experts) {
      return ranks * (1 - std::pow(1 - 1 / ranks, static_cast<double>(top_k)));
    }
    const std::int64_t of_rank = shape_.experts->experts / batch_.expert;
    const auto beyond = static_cast<double>(top_k - std::gcd(top_k, of_rank));
    return std::min(ranks, 1 + beyond / static_cast<double>(of_rank));
  }

  // Tokens go to the ranks of their experts and back, and so do gradients.
  void AddDispatch(double tokens, double width) {
    const auto ranks = static_cast<double>(batch_.expert);
    const auto top_k = static_cast<double>(shape_.experts->top_k);
    if (batch_.expert == 1) return;
    const double copies = sends_copies() ? top_k : RanksOfToken();
    constexpr int kDispatchAndCombine = 2;
    KernelCost exchange{.name = "exchange of tokens"};
    // Every rank gets all tokens of the others by an all-gather, and a reduce-scatter adds the
    // results; otherwise it gets those of its experts.
    const double bytes = kDispatchAndCombine * 2 * tokens * width;
    if (profile_.dispatcher == Dispatcher::kAllGather) {
      exchange.gathered = bytes * (ranks - 1);
    } else {
      exchange.routed = bytes * copies * (ranks - 1) / ranks;
    }
    exchange.collectives = kDispatchAndCombine;
    exchange.exposed = profile_.overlapped_experts ? kExpertExposed : 1;
    if (!sends_copies()) {
      exchange.routed_once = bytes;
      exchange.choices = profile_.consecutive_experts ? 1 : top_k;  // one node has them all
    }
    list_.AddForward(exchange);
    list_.AddInput(exchange);
  }

  // The ranks that divide a layer gather its input and scatter its output.
  void AddExchange(bool is_divided) {
    if (batch_.tensor == 1 || !is_divided) return;
    const auto ranks = static_cast<double>(batch_.tensor);
    const double exposed = OverlapsTensor(batch_) ? kTensorExposed : 1;
    list_.Exchange(tokens_ * sizes_.dim * 2 * (ranks - 1) / ranks, 2, 2, 1, exposed);
  }

  void AddHost(double seconds) {
    switch (profile_.graphs) {
      case CudaGraphs::kFull:
        return;
      case CudaGraphs::kPartial:
        seconds *= kHostPartialGraphs;
        break;
      case CudaGraphs::kNone:
        break;
    }
    list_.Host(seconds);
  }

  const ModelShape& shape_;
  const Microbatch& batch_;
  const Profile& profile_;
  Formats formats_;
  RankSizes sizes_;
  KernelList list_;
  double tokens_;
  double local_;  // tokens outside of matmuls
};

Work WorkOfLayer(const ModelShape& shape, std::int64_t number, const Microbatch& batch) {
  using enum LayerKind;
  Layer layer(shape, number, batch);
  const LayerKind kind = shape.kind(number);
  if (kind == kAttention || (kind == kBlock && !shape.has_delta(number)))
    layer.AddAttention(number);
  if (kind == kBlock && shape.has_delta(number)) layer.AddDelta();
  if (kind == kMamba) layer.AddMamba();
  if (kind == kBlock || kind == kFeedForward || kind == kExperts) layer.AddFeedForward(number);
  return layer.Take();
}

StagePart LayerOf(const ModelShape& shape, std::int64_t number, const Microbatch& batch) {
  return {.work = WorkOfLayer(shape, number, batch),
          .kept = MegatronKeptByLayer(shape, number, batch, kKernels),
          .is_layer = true,
          .transient = MegatronLayerTransient(shape, number, batch, kKernels)};
}

StagePart Predictor(const ModelShape& shape, const Microbatch& batch) {
  const auto dim = static_cast<double>(shape.dim);
  KernelList list(batch);
  list.Format(Precision::kBf16);
  list.Linear({"eh_proj", batch.tokens_of_rank(), 2 * dim, dim});
  StagePart part{.work = list.Take(),
                 .kept = MegatronKeptByPredictor(shape, batch, kKernels),
                 .is_layer = true};
  for (std::int64_t i = 0; i < shape.predictor_layers(); ++i) {
    Append(WorkOfLayer(shape, shape.layers + i, batch), part.work);
    part.transient =
        std::max(part.transient, MegatronLayerTransient(shape, shape.layers + i, batch, kKernels));
  }
  return part;
}

StagePart Embedding(const ModelShape& shape, const Microbatch& batch) {
  KernelList list(batch);
  const double elements = batch.tokens_of_rank() * static_cast<double>(shape.dim);
  list.AddForward({.name = "embedding", .bytes = elements * 4});
  list.AddWeight({.name = "embedding", .bytes = elements * 4});
  return {.work = list.Take(), .kept = MegatronKeptByEmbedding(shape, batch)};
}

StagePart FinalNorm(const ModelShape& shape, const Microbatch& batch) {
  constexpr double kNormPasses = 5;
  KernelList list(batch);
  list.Passes("norm", batch.tokens_of_rank() * static_cast<double>(shape.dim), kNormPasses);
  return {.work = list.Take(), .kept = MegatronKeptByFinalNorm(shape, batch)};
}

StagePart Logits(const ModelShape& shape, const Microbatch& batch) {
  const RankSizes sizes(shape, batch);
  KernelList list(batch);
  list.Format(Precision::kBf16);
  list.Linear({"head", batch.tokens(), sizes.dim, sizes.vocabulary});
  list.Passes("cross-entropy", batch.tokens() * sizes.vocabulary, kLogitPasses);
  return {.work = list.Take(),
          .kept = MegatronKeptByLogits(shape, batch),
          .transient = MegatronLossTransient(shape, batch)};
}

RankOverhead Overhead(const ModelShape& shape, const Microbatch& batch, const RankPlace& place) {
  return MegatronOverhead(shape, batch, place, kKernels);
}

double CopiesBetweenNodes(const Profile& profile) {
  constexpr std::string_view kFirstFaster = "2025-09";
  const bool is_first = !profile.release.empty() && profile.release < kFirstFaster;
  return is_first ? kAllToAllRack / (kAllToAllLink * kExpertLink) : 1;
}

Implementation Make() {
  Speeds speeds{.matmul = {kMatmulBf16, kMatmulBf16, kMatmulBf16, kMatmulFp8, kMatmulBlockwise,
                           kMatmulMxfp8, kMatmulNvfp4},
                .memory = kMemory,
                .link = kLink,
                .network = kNetwork};
  speeds.expert_link = kExpertLink;
  speeds.expert_network = kExpertNetwork;
  speeds.copies_link = kAllToAllLink;
  speeds.copies_network = kAllToAllNetwork;
  speeds.matmul_start = kMatmulStart;
  speeds.hidden_tensor = 1 - kTensorExposed;
  speeds.hidden_gradients = 1 - kGradientsExposed;
  return {
      .name = "transformer-engine",
      .source = "Megatron-Core with TransformerEngine, as Megatron-Bridge 25.09 to 26.08 runs it",
      .quantizes = true,
      .speeds = speeds,
      .bytes_per_step = kBytesPerStep,
      .fp32_gradients = false,  // grad_reduce_in_fp32 is off in the recipes
      .copies_heads = true,
      .quantized_gather_bytes = 1,
      .shards_exposed = kShardsExposed,
      .offload_exposed = kOffloadExposed,
      .has_device_factors = true,
      .layer = &LayerOf,
      .predictor = &Predictor,
      .embedding = &Embedding,
      .final_norm = &FinalNorm,
      .logits = &Logits,
      .states = &MegatronStates,
      .parameters = &MegatronParameters,
      .overlaps_tensor = &OverlapsTensor,
      .overhead = &Overhead,
      .copies_between_nodes = &CopiesBetweenNodes};
}

}  // namespace
}  // namespace transformer_engine

Implementation TransformerEngineImplementation() { return transformer_engine::Make(); }

}  // namespace penstock
