#include "scenario/fields.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "analytic/implementation.h"
#include "analytic/published_models.h"
#include "analytic/recompute.h"
#include "analytic/request/model_sizes.h"
#include "base/index.h"
#include "base/notes.h"
#include "schedule/cost_files/topology_config.h"
#include "schedule/text/cost_text.h"
#include "schedule/text/text.h"
#include "simulate/runs/monte_carlo.h"
#include "simulate/steady_state.h"

namespace penstock {
namespace {

constexpr int kMostRuns = 1'000'000;
constexpr double kMostSize = static_cast<double>(kMostShapeSize);

template <std::size_t N>
std::vector<std::string_view> List(const std::array<std::string_view, N>& names) {
  return {names.begin(), names.end()};
}

bool ReadsChunks(const Algorithm& algorithm, const Scenario& scenario) {
  return *scenario.chunks >= algorithm.supported.min_chunks &&
         *scenario.chunks <= algorithm.supported.max_chunks;
}
bool ReadsSlices(const Algorithm& algorithm, const Scenario& scenario) {
  return algorithm.supported.slices || *scenario.slices == 1;
}
bool ReadsSteps(const Algorithm& algorithm, const Scenario& scenario) {
  return algorithm.supported.steps || *scenario.steps == 1;
}
template <bool SupportedParameters::*parameter>
bool Reads(const Algorithm& algorithm, const Scenario&) {
  return algorithm.supported.*parameter;
}

std::vector<ScenarioField> ShapeFields() {
  const FieldGroup kGroup = FieldGroup::kShape;
  return {
      {.name = "ranks",
       .member = &Scenario::ranks,
       .group = kGroup,
       .value_name = "N",
       .help = "Pipeline ranks (default 4)",
       .short_name = "p",
       .least = 1},
      {.name = "chunks",
       .member = &Scenario::chunks,
       .group = kGroup,
       .value_name = "N",
       .help = "Stages per rank (default: the algorithm's)",
       .short_name = "v",
       .least = 1,
       .supported = &ReadsChunks},
      {.name = "microbatches",
       .member = &Scenario::microbatches,
       .group = kGroup,
       .value_name = "N",
       .help = "Microbatches per batch (default 8), of each replica if there are several "
               "(`data_parallel`)",
       .short_name = "m",
       .least = 1},
      {.name = "group",
       .member = &Scenario::group,
       .group = kGroup,
       .value_name = "N",
       .help = "Microbatches in flight at a time (interleaved)",
       .least = 1,
       .read_by = kAlgorithm,
       .supported = &Reads<&SupportedParameters::group>},
      {.name = "slices",
       .member = &Scenario::slices,
       .group = kGroup,
       .value_name = "N",
       .help = "Slices of a microbatch along the sequence",
       .least = 1,
       .read_by = kAlgorithm | kCsv,
       .supported = &ReadsSlices},
      {.name = "waves",
       .member = &Scenario::waves,
       .group = kGroup,
       .value_name = "N",
       .help = "Waves (hanayo)",
       .least = 1,
       .read_by = kAlgorithm,
       .supported = &Reads<&SupportedParameters::waves>},
      {.name = "steps",
       .member = &Scenario::steps,
       .group = kGroup,
       .value_name = "N",
       .help = "Batches, for schedules without a flush",
       .least = 1,
       .read_by = kAlgorithm | kCsv,
       .supported = &ReadsSteps},
      {.name = "split",
       .member = &Scenario::split,
       .group = kGroup,
       .value_name = "",
       .help = "Split backward into I and W, if the algorithm has both forms",
       .read_by = kAlgorithm,
       .supported = &Reads<&SupportedParameters::split>},
      {.name = "objective",
       .member = &Scenario::objective,
       .group = kGroup,
       .value_name = "WHAT",
       .help = "What a search shortens: makespan (default), or span, the longest time from a "
               "rank's first to its last action, which counts if steps do not wait for all ranks",
       .choices = List(kObjectiveNames),
       .read_by = kAlgorithm,
       .supported = &Reads<&SupportedParameters::objective>},
  };
}

std::vector<ScenarioField> FileFields() {
  const FieldGroup kGroup = FieldGroup::kFiles;
  return {
      {.name = "replicas",
       .member = &Scenario::replicas,
       .group = kGroup,
       .value_name = "N",
       .help = "Replicas of the model in a CSV file (default 1)",
       .least = 1,
       .read_by = kCsv},
      {.name = "weight_policy",
       .member = &Scenario::weight_policy,
       .group = kGroup,
       .value_name = "POLICY",
       .help = "Weight policy of a CSV file: flush, stashed or double-buffered (default flush)",
       .former_name = "weights",
       .choices = List(kWeightPolicyNames),
       .read_by = kCsv},
      {.name = "iteration",
       .member = &Scenario::iteration,
       .group = kGroup,
       .value_name = "N",
       .help = "Step of a trace or of Primus's dumps (default: the last complete one)",
       .read_by = kDump | kTrace},
      {.name = "trace_rule",
       .member = &Scenario::trace_rule,
       .group = kGroup,
       .value_name = "FILE",
       .help = "Which events of a trace are the pipeline's (default: those of torch or "
               "Megatron-LM)",
       .read_by = kTrace},
  };
}

std::vector<ScenarioField> CostFields() {
  const FieldGroup kGroup = FieldGroup::kCosts;
  const int kOrders = kSearches | kPasses;  // what costs an action may change its place
  return {
      {.name = "cost",
       .member = &Scenario::cost,
       .group = kGroup,
       .value_name = "F,I,W[,KEPT]",
       .help = "Times of one rank and microbatch: forward, backward for the input, backward for "
               "the weights; one number stands for all three (default 1,1,1). A fourth number is "
               "the part of the activations that W keeps after I (default 1)",
       .is_joined = true,
       .ordered_by = kOrders,
       .with_model = WithModel::kNotWith},
      {.name = "stage_costs",
       .member = &Scenario::stage_costs,
       .group = kGroup,
       .value_name = "",
       .help = "Costs per stage, if stages differ: a list of maps",
       .in_candidates = false},
      {.name = "layer_costs",
       .member = &Scenario::layer_costs,
       .group = kGroup,
       .value_name = "",
       .help = "Costs per layer, for any number of stages: a list of maps",
       .in_candidates = false},
      {.name = "comm",
       .member = &Scenario::comm,
       .group = kGroup,
       .value_name = "T",
       .help = "Latency of a transfer between ranks, in the unit of `cost`; with `model`, a time "
               "with its unit (5ms)",
       .ordered_by = kOrders},
      {.name = "bandwidth",
       .member = &Scenario::bandwidth,
       .group = kGroup,
       .value_name = "X",
       .help = "Bandwidth of the link of each rank, in bytes per unit of time (per second with "
               "`model`); messages on it take turns",
       .least = 0,
       .ordered_by = kOrders},
      {.name = "overlap",
       .member = &Scenario::overlap,
       .group = kGroup,
       .value_name = "RULE",
       .help = "Time of an overlapped forward and backward: max, sum or a factor of F + B",
       .choices = List(kOverlapNames),
       .ordered_by = kOrders},
      {.name = "launch",
       .member = &Scenario::launch,
       .group = kGroup,
       .value_name = "T",
       .help = "Time that every F, I, W, B and RECOMPUTE takes in addition, in the unit of "
               "`cost`; with `model`, a time with its unit (5us)",
       .ordered_by = kOrders},
      {.name = "slow_rank",
       .member = &Scenario::slow_rank,
       .group = kGroup,
       .value_name = "RANK=FACTOR",
       .help = "A rank that takes FACTOR times as long for all its actions (3=1.2); repeatable",
       .ordered_by = kOrders},
      {.name = "transfers",
       .member = &Scenario::transfers,
       .group = kGroup,
       .value_name = "HOW",
       .help = "What ranks do while messages are in flight: asynchronous (default), blocking "
               "(wait until results have arrived; default with `implementation` megatron) or "
               "batched (send and receive together, as Megatron-LM does)",
       .choices = List(kTransfersNames),
       .ordered_by = kPasses},
      {.name = "offload_sharing",
       .member = &Scenario::offload_sharing,
       .group = kGroup,
       .value_name = "N",
       .help = "Consecutive ranks that share one link to the slower pool in each direction "
               "(default 1)",
       .least = 1,
       .ordered_by = kPasses},
      {.name = "microbatch_lengths",
       .member = &Scenario::microbatch_lengths,
       .group = kGroup,
       .value_name = "X,...",
       .help = "Relative lengths of the microbatches, repeated if there are fewer (1,0.5,2): "
               "times, activations and messages scale with them",
       .is_joined = true,
       .ordered_by = kOrders},
      {.name = "memory_limit",
       .member = &Scenario::memory_limit,
       .group = kGroup,
       .value_name = "LIMIT",
       .help = "Memory limit per rank: activations of one rank and microbatch, or a size (6GiB) "
               "if the costs are in bytes",
       .ordered_by = kSearches},
      {.name = "activation_bytes",
       .member = &Scenario::activation_bytes,
       .group = kGroup,
       .value_name = "SIZE",
       .help = "Size of the activations of one rank and microbatch (4GiB); memory is then in bytes",
       .ordered_by = kPasses,
       .with_model = WithModel::kNotWith},
      {.name = "message_bytes",
       .member = &Scenario::message_bytes,
       .group = kGroup,
       .value_name = "SIZE",
       .help = "Size of the tensor between two stages for a microbatch (16MiB)",
       .ordered_by = kNobody,
       .with_model = WithModel::kNotWith},
      {.name = "topology",
       .member = &Scenario::topology,
       .group = kGroup,
       .value_name = "",
       .help = "Levels of links between ranks in place of `comm`: a list of maps",
       .in_candidates = false},
      {.name = "collectives",
       .member = &Scenario::collectives,
       .group = kGroup,
       .value_name = "",
       .help = "Replicas and links from which the times of UNSHARD and REDUCE_GRAD follow: a map",
       .in_candidates = false},
      {.name = "time_unit",
       .member = &Scenario::time_unit,
       .group = kGroup,
       .value_name = "s",
       .help = "s if the costs are seconds, which tables and pages then show",
       .choices = {"s"},
       .in_candidates = false},
  };
}

// The constants of a machine, with what a fit may find.
void SetFitRanges(std::vector<ScenarioField>& fields) {
  constexpr double kMostLaunch = 300e-6;  // seconds
  const std::pair<std::string_view, FitRange> ranges[] = {
      {"flops_efficiency", {0.02, 1, 0.6}},   {"bandwidth_efficiency", {0.02, 1, 0.8}},
      {"link_efficiency", {0.02, 1, 0.8}},    {"network_efficiency", {0.02, 1, 0.8}},
      {"hidden_communication", {0, 1, 0}},    {"hidden_gradients", {0, 1, 0}},
      {"device_launch", {0, kMostLaunch, 0}}, {"host_launch", {0, kMostLaunch, 0}},
      {"time_factor", {0.2, 5, 1}},
  };
  for (ScenarioField& field : fields) {
    for (const auto& [name, range] : ranges) {
      if (field.name == name) field.fit = range;
    }
  }
}

std::vector<ScenarioField> ModelFields() {
  const FieldGroup kGroup = FieldGroup::kModel;
  const auto row = [&](std::string_view name, ScenarioMember member, std::string_view value_name,
                       std::string help) {
    ScenarioField field{.name = name,
                        .member = std::move(member),
                        .group = kGroup,
                        .value_name = value_name,
                        .help = std::move(help)};
    field.ordered_by = kSearches | kPasses;
    if (name != "model") field.with_model = WithModel::kOnlyWith;
    return field;
  };
  std::vector<ScenarioField> fields = {
      row("model", &Scenario::model, "MODEL",
          "Price a model in seconds and bytes: a config.json of Hugging Face, or one of " +
              fmt::format("{}", fmt::join(PublishedModelNames(), ", ")) +
              "; or decoder or gpt with sizes"),
      row("device", &Scenario::device, "DEVICE",
          fmt::format("What trains it: a YAML file with its peaks, or one of {} (default {})",
                      fmt::join(DeviceNames(), ", "), kUsualDevice)),
      row("nodes", &Scenario::nodes, "NxG",
          "Nodes and devices per node, both (default 1x8). `ranks` is by default the number of "
          "devices, divided by `tensor` and `data_parallel`"),
      row("micro_batch_size", &Scenario::micro_batch_size, "N",
          "Samples per microbatch (default 1)"),
      row("sequence", &Scenario::sequence, "N", "Tokens per sample (default 4096; 1024 for gpt2)"),
      row("precision", &Scenario::precision, "DTYPE",
          fmt::format("{} (default bf16, with fp32 masters)", fmt::join(kPrecisionNames, ", "))),
      row("tensor", &Scenario::tensor, "N", "Devices that divide each layer (default 1)"),
      row("data_parallel", &Scenario::data, "N",
          "Replicas of the pipeline (default 1), each of which runs all `microbatches`"),
      row("expert", &Scenario::expert, "N",
          "Replicas that divide the experts of each layer, a divisor of `data_parallel` (default "
          "1)"),
      row("expert_tensor", &Scenario::expert_tensor, "N",
          "Devices that divide each expert (default `tensor`); `expert` times `expert_tensor` are "
          "taken from the devices of a stage"),
      row("context", &Scenario::context, "N",
          "Devices that divide the tokens of each sample (default 1)"),
      row("context_exchange", &Scenario::context_exchange, "HOW",
          fmt::format("How these exchange keys and values: {} (default ring)",
                      fmt::join(kContextExchangeNames, ", "))),
      row("sequence_parallel", &Scenario::sequence_parallel, "",
          "Whether the devices of `tensor` also divide the sequence outside of matmuls (default "
          "true)"),
      row("recompute", &Scenario::recompute, "WHAT",
          fmt::format("What the backward computes again: {} (default none)", kRecomputeForms)),
      row("layout", &Scenario::layout, "LAYOUT",
          "Layers of each stage: numbers (8,10,10,8), Megatron-LM's layout (Et*3|(tt|)*29L) or "
          "torchtitan's lists of modules (default: as even as possible)"),
      row("zero_ranks", &Scenario::zero_ranks, "N",
          "Replicas that divide states by `zero` among themselves, if not all (hybrid sharding)"),
      row("zero", &Scenario::zero, "N",
          "What replicas divide: 1 optimizer state, 2 and gradients, 3 and weights (default 0)"),
      row("flops_efficiency", &Scenario::flops_efficiency, "X",
          "Part of the peak FLOP/s that matmuls reach (default 0.6 with `implementation` "
          "penstock)"),
      row("bandwidth_efficiency", &Scenario::bandwidth_efficiency, "X",
          "Part of the bandwidth of memory and links (default 0.8 with `implementation` penstock)"),
      row("link_efficiency", &Scenario::link_efficiency, "X",
          "Part of the bandwidth of the links in a node (default `bandwidth_efficiency`)"),
      row("network_efficiency", &Scenario::network_efficiency, "X",
          "Part of the bandwidth between nodes (default `bandwidth_efficiency`)"),
      row("hidden_communication", &Scenario::hidden_communication, "X",
          "Part of the communication of `tensor` and `expert` that compute hides (default 0)"),
      row("hidden_gradients", &Scenario::hidden_gradients, "X",
          "Part of the sums of gradients and gathers of weights that compute hides"),
      row("device_launch", &Scenario::device_launch, "T",
          "Time of the device per kernel besides its work (2us)"),
      row("host_launch", &Scenario::host_launch, "T",
          "Time of the host per kernel, hidden while the device is busy (5us)"),
      row("time_factor", &Scenario::time_factor, "X",
          "Factor of all times, as `penstock calibrate` fits it (default 1)"),
  };
  for (ScenarioField field :
       {row("stage_tensor", &Scenario::stage_tensor, "N,...",
            "Devices that divide each layer of a stage, by stage, if stages differ (2,2,4)"),
        row("stage_data", &Scenario::stage_data, "N,...",
            "Devices that divide the samples of each microbatch, by stage (1,2,1)"),
        row("stage_recompute", &Scenario::stage_recompute, "WHAT,...",
            "`recompute` by stage (full,none)")}) {
    field.is_joined = true;
    fields.push_back(std::move(field));
  }
  fields.push_back(row("machine", &Scenario::machine, "FILE",
                       "A file with constants of the machine, such as `flops_efficiency`, that "
                       "'penstock calibrate' fitted to measured runs"));
  fields.back().takes_path = true;
  SetFitRanges(fields);
  for (ScenarioField& field : fields) {
    if (field.name == "data_parallel") field.former_name = "data";
    if (field.name == "model") {
      field.choices = PublishedModelNames();
      field.choices.insert(field.choices.end(), std::begin(kUnnamedModels),
                           std::end(kUnnamedModels));
      field.takes_path = true;
    }
    if (field.name == "device") {
      field.choices = DeviceNames();
      field.takes_path = true;
    }
    if (field.name == "precision") field.choices = List(kPrecisionNames);
    if (field.name == "context_exchange") field.choices = List(kContextExchangeNames);
    if (field.name == "recompute" || field.name == "layout") field.is_joined = true;
    if (field.value_name != "N") continue;
    field.least = field.name == "zero" ? 0 : 1;
    field.most = field.name == "zero" ? 3 : kMostSize;
  }
  return fields;
}

// How a framework computes the model.
std::vector<ScenarioField> ImplementationFields() {
  const auto row = [](std::string_view name, ScenarioMember member, std::string_view value_name,
                      std::string help, std::vector<std::string_view> choices = {}) {
    ScenarioField field{.name = name,
                        .member = std::move(member),
                        .group = FieldGroup::kModel,
                        .value_name = value_name,
                        .help = std::move(help),
                        .choices = std::move(choices)};
    field.ordered_by = kSearches | kPasses;
    field.with_model = WithModel::kOnlyWith;
    return field;
  };
  std::vector<ScenarioField> fields = {
      row("implementation", &Scenario::implementation, "NAME",
          fmt::format("What computes the model: {} (default penstock)",
                      fmt::join(ImplementationNames(), ", ")),
          ImplementationNames()),
      row("attention", &Scenario::attention, "KERNEL",
          "Kernel of attention: auto, flash, fused or unfused (default auto)",
          List(kAttentionNames)),
      row("cuda_graphs", &Scenario::cuda_graphs, "HOW",
          "What CUDA graphs launch: none, partial (of each layer) or full (default none)",
          List(kCudaGraphsNames)),
      row("dispatcher", &Scenario::dispatcher, "HOW",
          fmt::format("How tokens reach their experts: {} (default all-to-all)",
                      fmt::join(kDispatcherNames, ", ")),
          List(kDispatcherNames)),
      row("release", &Scenario::release, "YYYY-MM",
          "Release of the implementation, where that matters (default: the newest)"),
      row("expert_imbalance", &Scenario::expert_imbalance, "X",
          "Tokens of the busiest rank's experts over the mean (default 1)"),
      row("dropout", &Scenario::dropout, "", "Whether the model has dropout"),
      row("deterministic", &Scenario::deterministic, "",
          "Whether only kernels run whose sums have one order"),
      row("fused_loss", &Scenario::fused_loss, "", "Whether one kernel computes the loss"),
      row("fused_experts", &Scenario::fused_experts, "",
          "Whether the matmuls of experts include activation and quantization"),
      row("overlapped_experts", &Scenario::overlapped_experts, "",
          "Whether the exchanges of experts run under another microbatch's compute"),
      row("fp8_attention", &Scenario::fp8_attention, "", "Whether attention runs in 8 bits"),
      row("linear_biases", &Scenario::linear_biases, "", "Whether linear layers have biases"),
      row("grouped_experts", &Scenario::grouped_experts, "",
          "Whether one call computes the matmuls of all experts of a rank (default true)"),
      row("attention_mask", &Scenario::attention_mask, "",
          "Whether the data loader makes a mask of all pairs of tokens, as Megatron-LM's does"),
      row("fragmentation", &Scenario::fragmentation, "X",
          "Memory that the allocator holds besides what is allocated, as a part of it (default 0)"),
      row("deferred_head", &Scenario::deferred_head, "N",
          "Microbatches whose weight gradient of the head is computed after the pipeline"),
      row("drops_tokens", &Scenario::drops_tokens, "",
          "Whether experts take a fixed number of tokens and drop others"),
      row("lora", &Scenario::lora, "",
          "Whether weights are frozen and adapters are trained, whose cost is not counted"),
      row("layers_at_end_in_bf16", &Scenario::layers_at_end_in_bf16, "N",
          "Last layers whose matmuls stay in bf16 with a precision of 8 or 4 bits (default 0)"),
      row("offload_modules", &Scenario::offload_modules, "MODULE,...",
          "Modules of all layers whose tensors are in the memory of the host: attn_norm, "
          "qkv_linear, "
          "core_attn, attn_proj, mlp_norm, expert_fc1, moe_act"),
      row("offloaded_layers", &Scenario::offloaded_layers, "N",
          "Layers of the model whose activations wait in the memory of the host (default 0)"),
  };
  for (ScenarioField& field : fields) field.is_joined = field.name == "offload_modules";
  return fields;
}

std::vector<ScenarioField> SizeFields() {
  const auto row = [](std::string_view name, ScenarioMember member, std::string help) {
    ScenarioField field{.name = name,
                        .member = std::move(member),
                        .group = FieldGroup::kModel,
                        .value_name = "N",
                        .help = std::move(help)};
    field.ordered_by = kSearches | kPasses;
    field.with_model = WithModel::kOnlyWith;
    field.most = kMostSize;
    return field;
  };
  std::vector<ScenarioField> fields = {
      row("layers", &Scenario::layers, "Layers of the model, in place of its own"),
      row("dim", &Scenario::dim, "Width of hidden states"),
      row("hidden", &Scenario::hidden, "Width of feed-forward layers"),
      row("vocabulary", &Scenario::vocabulary, "Tokens of the vocabulary"),
      row("heads", &Scenario::heads, "Heads of attention"),
      row("kv_heads", &Scenario::kv_heads, "Heads of keys and values (default `heads`)"),
      row("head_dim", &Scenario::head_dim, "Size of a head (default `dim` / `heads`)"),
      row("latent", &Scenario::latent,
          "Multi-head latent attention: ranks of queries and of keys and values, and per head the "
          "sizes without positions, with positions and of values (1536,512,128,64,128)"),
      row("window", &Scenario::window, "Tokens that attention reaches back; 0: all"),
      row("experts", &Scenario::experts, "Experts of a layer; 0: none"),
      row("top_k", &Scenario::top_k, "Experts that process a token"),
      row("expert_hidden", &Scenario::expert_hidden, "Width of an expert (default `hidden`)"),
      row("shared_experts", &Scenario::shared_experts, "Experts that process every token"),
      row("shared_hidden", &Scenario::shared_hidden,
          "Width of all shared experts together (default that of as many experts)"),
      row("dense_layers", &Scenario::dense_layers, "First layers without experts"),
      row("predictors", &Scenario::predictors,
          "Layers that predict further tokens (multi-token prediction)"),
      row("pattern", &Scenario::pattern,
          "Layers of a hybrid, one letter each: M for Mamba-2, * for attention, - for a "
          "feed-forward "
          "layer, E for experts"),
      row("mamba", &Scenario::mamba,
          "Mamba-2 layers: number of heads, their size, the size of their state and the number of "
          "groups (64,64,128,8)"),
      row("positions", &Scenario::positions, "Learned positions; 0: rotary ones"),
      row("qk_norm", &Scenario::qk_norm, "Whether queries and keys are normalized"),
      row("tied", &Scenario::tied, "Whether the head is the embedding"),
      row("gated", &Scenario::gated, "Whether feed-forward layers have a gate, as in SwiGLU"),
  };
  constexpr std::string_view kMayBeZero[] = {"window",       "experts",    "shared_experts",
                                             "dense_layers", "predictors", "positions"};
  for (ScenarioField& field : fields) {
    field.least = std::ranges::find(kMayBeZero, field.name) == std::end(kMayBeZero) ? 1 : 0;
    const bool is_flag = std::holds_alternative<std::optional<bool> Scenario::*>(field.member);
    if (is_flag) field.value_name = "";
    if (field.name == "pattern") field.value_name = "LETTERS";
    if (field.name != "latent" && field.name != "mamba") continue;
    field.value_name = field.name == "latent" ? "N,N,N,N,N" : "N,N,N,N";
    field.is_joined = true;
  }
  return fields;
}

std::vector<ScenarioField> PassFields() {
  const FieldGroup kGroup = FieldGroup::kPasses;
  return {
      {.name = "pass",
       .member = &Scenario::pass,
       .group = kGroup,
       .value_name = "PASS",
       .help = "Transform the schedule by passes, in this order ('penstock schedules --passes' "
               "lists them); commas separate several"},
      {.name = "price",
       .member = &Scenario::price,
       .group = kGroup,
       .value_name = "KEY=X",
       .help = "Costs of actions that passes add (listed there too); commas separate several",
       .ordered_by = kPasses},
  };
}

std::vector<ScenarioField> RunFields() {
  const FieldGroup kGroup = FieldGroup::kRuns;
  return {
      {.name = "jitter",
       .member = &Scenario::jitter,
       .group = kGroup,
       .value_name = "CV",
       .help = "Also run with random times (lognormal, the costs are their means) and add mean, "
               "median and 95th percentile of the makespan. CV is the standard deviation over the "
               "mean"},
      {.name = "seed",
       .member = &Scenario::seed,
       .group = kGroup,
       .value_name = "N",
       .help = "Seed of the random times (default 0)",
       .least = 0},
      {.name = "runs",
       .member = &Scenario::runs,
       .group = kGroup,
       .value_name = "N",
       .help = fmt::format("Number of runs with jitter (default {})", MonteCarloOptions().runs),
       .least = 1,
       .most = kMostRuns},
      {.name = "repeat",
       .member = &Scenario::repeat,
       .group = kGroup,
       .value_name = "N",
       .help = "Also run N consecutive steps and print the time of one in steady state",
       .least = 2,
       .most = kMostRepeats},
  };
}

std::vector<ScenarioField> AllFields() {
  std::vector<ScenarioField> all;
  for (std::vector<ScenarioField> group :
       {ShapeFields(), FileFields(), CostFields(), ModelFields(), SizeFields(),
        ImplementationFields(), PassFields(), RunFields()}) {
    std::ranges::move(group, std::back_inserter(all));
  }
  return all;
}

}  // namespace

std::span<const ScenarioField> ScenarioFields() {
  static const std::vector<ScenarioField> fields = AllFields();
  return fields;
}

const ScenarioField* FindField(std::string_view name) {
  const auto found = std::ranges::find(ScenarioFields(), name, &ScenarioField::name);
  return found == ScenarioFields().end() ? nullptr : &*found;
}

std::string_view CurrentFieldName(std::string_view name) {
  for (const ScenarioField& field : ScenarioFields()) {
    if (field.former_name.empty() || field.former_name != name) continue;
    AddNote(fmt::format("'{}' is called '{}' now; the former name works in this release only", name,
                        field.name));
    return field.name;
  }
  return name;
}

}  // namespace penstock
