// Implementations: how a framework computes a model. What it keeps, how many kernels it launches
// and how fast these run depend on it, so each has its own lists of kernels and tensors.
//
// Adding one takes its lists in implementations/NAME.cpp, and a row in implementations.cpp there.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cost_model/precision.h"
#include "model_spec/state_bytes.h"
#include "schedule/topology.h"

namespace penstock {

struct LayerRange;
struct Microbatch;
struct ModelShape;
struct ParameterCount;
struct Profile;
struct StagePart;

enum class AttentionKernel { kAuto, kFlash, kFused, kUnfused };
inline constexpr std::array<std::string_view, 4> kAttentionNames = {"auto", "flash", "fused",
                                                                    "unfused"};
enum class CudaGraphs { kNone, kPartial, kFull };
inline constexpr std::array<std::string_view, 3> kCudaGraphsNames = {"none", "partial", "full"};
// How tokens reach the ranks of their experts: all to all ranks, one copy per expert, or one copy
// per rank (DeepEP, DeepSeek-AI 2025) or per node (HybridEP, NVIDIA 2025).
enum class Dispatcher { kAllGather, kAllToAll, kDeepEp, kHybridEp };
inline constexpr std::array<std::string_view, 4> kDispatcherNames = {"all-gather", "all-to-all",
                                                                     "deepep", "hybridep"};

// The dtype of AdamW's moments.
enum class Moments { kFp32, kBf16, kFp8 };
inline constexpr std::array<std::string_view, 3> kMomentNames = {"fp32", "bf16", "fp8"};

// NVIDIA's architectures, or what is like them: the formats of 8 and 4 bits came with the last two.
enum class Generation { kAmpere, kHopper, kBlackwell };

// Parts of the peaks that kernels reach, and the fixed costs of a kernel. A value of a machine file
// or an option replaces them.
struct Speeds {
  // Matmuls, by Precision; 0: as bf16.
  std::array<double, kPrecisionNames.size()> matmul = {0.6, 0.6, 0.6};
  double memory = 0.8;
  double link = 0.8;
  double network = 0.8;
  double expert_link = 0;     // of links, for exchanges of `expert`; 0: as `link`
  double expert_network = 0;  // likewise
  // Further parts of these, where a rank gets a token once for each of its experts.
  double copies_link = 1, copies_network = 1;
  double matmul_start = 0;  // inner length of a matmul that takes as long as its start and end, at
                            // the peak of bf16
  double collective_latency = 0;  // fixed seconds of a collective; 0: a message's
  double device_launch = 0;       // fixed seconds of the device per kernel
  double host_launch = 0;         // seconds of the host per kernel, hidden while the device is busy
  double hidden_gradients = 0;    // part of sums of gradients and gathers of weights
  // Part of the messages of `tensor`, `context` and `expert` that compute hides, if it is given;
  // otherwise kernels say what is exposed of theirs, and `hidden_tensor` is what most of them say.
  std::optional<double> hidden_communication = {};
  double hidden_tensor = 0;
  double exposed_factor = 1;  // of what is exposed

  double of(Precision precision) const {
    const double part = matmul[static_cast<std::size_t>(precision)];
    return part > 0 ? part : matmul[static_cast<std::size_t>(Precision::kBf16)];
  }
};

// Memory of a rank that no stage and no microbatch has, in bytes.
struct RankOverhead {
  double workspace = 0;  // of matmul libraries
  double messages = 0;   // buffers of messages between ranks
  double others = 0;     // masks, tables and other buffers of the framework
  double context = 0;    // of the device's driver and of libraries of collectives, which the
                         // framework's allocator does not count
};
struct RankPlace {
  int rank = 0, ranks = 1, chunks = 1;
};

struct Implementation {
  std::string_view name;
  std::string_view source;  // where its lists are from
  bool quantizes = false;   // whether linear layers run in 8 or 4 bits
  Speeds speeds = {};
  double bytes_per_step = 0;  // that the optimizer moves per parameter; 0: its states
  double gathered_bytes = 0;  // of a weight that replicas gather; 0: as in memory
  // Whether gradients are summed in fp32, or in the format of weights, if a run does not say.
  // Empty: a run cannot choose.
  std::optional<bool> fp32_gradients = {};
  // What ranks do while messages between stages are in flight.
  Transfers transfers = Transfers::kAsynchronous;
  // Whether each rank that divides a layer sends its part of the hidden states, which the receivers
  // gather (Narayanan et al., Megatron-LM, 2021, section 4.1).
  bool scatters_messages = false;
  // Whether the first and the last stage add their gradients of a tied embedding in each step.
  bool sums_tied_gradients = false;
  // Whether more ranks may divide a layer than it has heads of keys and values, with copies of
  // them.
  bool copies_heads = false;
  // Whether a layer gathers the tokens that ranks divide once, for all that it computes: F keeps
  // them for W, and each rank chooses the experts of all of them.
  bool gathers_once = false;
  // Whether a vocabulary that ranks do not divide evenly is padded; otherwise each has all of it.
  bool pads_vocabulary = true;
  // Whether ranks that divide the tokens of samples also divide states by `zero`, and sum gradients
  // together with the replicas. Otherwise they have an all-reduce of their own, once per step.
  bool shards_over_context = true;
  double quantized_gather_bytes = 0;  // `gathered_bytes` of a quantized precision
  // With `zero` 3: part of the gathers of weights and sums of gradients that compute does not hide,
  // if every F and I gathers them and every I sums them; 0: each is gathered and summed once a
  // step.
  double shards_exposed = 0;
  bool is_fsdp = false;           // whether `zero` 2 and 3 are torch's FSDP2 (fsdp.h)
  bool recomputes_by_op = false;  // whether it can keep outputs by operator (torch_list.h)
  // Whether a compiler cuts matmuls into pieces, with which messages of `tensor` alternate.
  bool cuts_matmuls = false;
  double offload_exposed = 1;  // part of offloading activations that compute does not hide
  // Whether the factors of times that devices have (device.h) go with its constants.
  bool has_device_factors = false;

  // One layer, an extra predictor's layer, the embedding, and the final norm with head and loss.
  StagePart (*layer)(const ModelShape&, std::int64_t layer, const Microbatch&) = nullptr;
  StagePart (*predictor)(const ModelShape&, const Microbatch&) = nullptr;
  StagePart (*embedding)(const ModelShape&, const Microbatch&) = nullptr;
  StagePart (*final_norm)(const ModelShape&, const Microbatch&) = nullptr;
  StagePart (*logits)(const ModelShape&, const Microbatch&) = nullptr;
  StateFormat (*states)(const Microbatch&) = nullptr;
  // The parameters of a rank; null: all parameters of the stage are divided by the ranks that
  // divide its layers.
  ParameterCount (*parameters)(const ModelShape&, const LayerRange&, const Microbatch&) = nullptr;
  // Whether ranks that divide the layers of a model can divide the tokens in between; null: always.
  bool (*divides_tokens)(const ModelShape&, const Microbatch&) = nullptr;
  // Whether ranks that divide layers exchange tokens while matmuls run; null: never.
  bool (*overlaps_tensor)(const Microbatch&) = nullptr;
  // Elements of the gradients that they add once per step, in one call; null: none.
  double (*summed_once)(const ModelShape&, const LayerRange&, const Microbatch&) = nullptr;
  RankOverhead (*overhead)(const ModelShape&, const Microbatch&, const RankPlace&) = nullptr;
  // Part of `expert_link` that is left where links join nodes and a rank gets a token once for each
  // of its experts; null: all.
  double (*copies_between_nodes)(const Profile&) = nullptr;
};

// What a run sets of its implementation. An empty optional has the implementation's default.
struct Profile {
  const Implementation* implementation = nullptr;  // null: penstock
  AttentionKernel attention = AttentionKernel::kAuto;
  CudaGraphs graphs = CudaGraphs::kNone;
  Dispatcher dispatcher = Dispatcher::kAllToAll;
  bool dropout = false;        // after attention and feed-forward parts, and of scores
  bool deterministic = false;  // only kernels whose sums have one order
  bool fused_loss = false;
  bool fused_experts = false;       // activation and quantization run within the grouped matmuls
  bool overlapped_experts = false;  // exchanges run under another microbatch's compute
  Moments moments = Moments::kFp32;
  double offloaded_states = 0;  // part of masters and moments in the memory of the host
  bool fp8_attention = false;
  bool linear_biases = false;   // of a decoder
  bool grouped_experts = true;  // one call computes the matmuls of all experts of a rank
  bool attention_mask = false;  // the data loader makes a mask of all pairs of tokens
  int deferred_head = 0;        // microbatches whose weight gradient of the head comes last
  double fragmentation = 0;     // unused memory that the allocator holds, relative to used memory
  Generation generation = Generation::kHopper;  // of the device
  bool drops_tokens = false;                    // experts take a fixed number of rows
  // Whether matmuls by pieces run under the messages of `tensor`.
  bool async_tensor = false;
  std::optional<bool> fp32_gradients = {};
  bool lora = false;                 // weights are frozen, and linear layers have adapters
  bool qkv_adapters = false;         // only those of queries, keys and values
  bool consecutive_experts = false;  // a token's experts are neighbors, by no router's choice
  int layers_at_end_in_bf16 = 0;     // with a quantized precision
  int offloaded_layers = 0;          // whose activations are in the memory of the host
  int offloaded_modules = 0;         // of all layers, likewise: a sum of Modules (layer_work.h)
  std::string release = {};  // of the software, as year and month (2025-10); empty: the newest

  const Implementation& get() const;
  bool sums_in_fp32() const { return fp32_gradients.value_or(get().fp32_gradients.value_or(true)); }
  // The part of the activations of `layers` layers that is in the memory of the host.
  double offloaded_part(std::int64_t layers) const {
    return std::min(1.0, static_cast<double>(offloaded_layers) / static_cast<double>(layers));
  }
};

// Returns what the implementation keeps of a parameter, with the moments that the run asks for.
StateFormat StateFormatOf(const Microbatch& batch);

const std::vector<Implementation>& Implementations();
std::vector<std::string_view> ImplementationNames();
// Errors: kNotFound, with the nearest name.
Result<const Implementation*> FindImplementation(std::string_view name);

}  // namespace penstock
