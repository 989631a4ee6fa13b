#include "scenario/model_fields.h"

#include <fmt/ranges.h>

#include "cost_model/implementation.h"
#include "cost_model/model_on_cluster.h"
#include "cost_model/published_models.h"
#include "cost_model/recompute.h"
#include "cost_model/request/model_sizes.h"

namespace penstock {
namespace {

constexpr double kMostSize = static_cast<double>(kMostShapeSize);

ScenarioField ModelField(std::string_view name, ScenarioMember member, std::string_view value_name,
                         std::string help, std::vector<std::string_view> choices = {}) {
  ScenarioField field{.name = name,
                      .member = member,
                      .group = FieldGroup::kModel,
                      .value_name = value_name,
                      .help = std::move(help),
                      .choices = std::move(choices)};
  field.ordered_by = kSearches | kPasses;
  field.with_model = WithModel::kOnlyWith;
  return field;
}

// Sets, for the constants of a machine, what a fit may find.
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

}  // namespace

std::vector<ScenarioField> ModelFields() {
  std::vector<ScenarioField> fields = {
      ModelField("model", &Scenario::model, "MODEL",
                 "Price a model in seconds and bytes: a config.json of Hugging Face, or one of " +
                     fmt::format("{}", fmt::join(PublishedModelNames(), ", ")) +
                     "; or decoder or gpt with sizes"),
      ModelField("device", &Scenario::device, "DEVICE",
                 fmt::format("What trains it: a YAML file with its peaks, or one of {} (default "
                             "{}); several with `+`, "
                             "each for the nodes of its place in `nodes` (h100+a100)",
                             fmt::join(DeviceNames(), ", "), kUsualDevice)),
      ModelField("nodes", &Scenario::nodes, "NxG",
                 "Nodes and devices per node, both (default 1x8; 4x8+2x8 for two devices). `ranks` "
                 "is by default the number of "
                 "devices, divided by `tensor` and `data_parallel`"),
      ModelField("micro_batch_size", &Scenario::micro_batch_size, "N",
                 "Samples per microbatch (default 1)"),
      ModelField("sequence", &Scenario::sequence, "N",
                 "Tokens per sample (default 4096; 1024 for gpt2)"),
      ModelField(
          "precision", &Scenario::precision, "DTYPE",
          fmt::format("{} (default bf16, with fp32 masters)", fmt::join(kPrecisionNames, ", "))),
      ModelField("tensor", &Scenario::tensor, "N", "Devices that divide each layer (default 1)"),
      ModelField("data_parallel", &Scenario::data, "N",
                 "Replicas of the pipeline (default 1), each of which runs all `microbatches`"),
      ModelField(
          "expert", &Scenario::expert, "N",
          "Replicas that divide the experts of each layer, a divisor of `data_parallel` (default "
          "1)"),
      ModelField(
          "expert_tensor", &Scenario::expert_tensor, "N",
          "Devices that divide each expert (default `tensor`); `expert` times `expert_tensor` are "
          "taken from the devices of a stage"),
      ModelField("context", &Scenario::context, "N",
                 "Devices that divide the tokens of each sample (default 1)"),
      ModelField("context_exchange", &Scenario::context_exchange, "HOW",
                 fmt::format("How these exchange keys and values: {} (default ring)",
                             fmt::join(kContextExchangeNames, ", "))),
      ModelField(
          "sequence_parallel", &Scenario::sequence_parallel, "",
          "Whether the devices of `tensor` also divide the sequence outside of matmuls (default "
          "true)"),
      ModelField(
          "recompute", &Scenario::recompute, "WHAT",
          fmt::format("What the backward computes again: {} (default none)", kRecomputeForms)),
      ModelField(
          "layout", &Scenario::layout, "LAYOUT",
          "Layers of each stage: numbers (8,10,10,8), Megatron-LM's layout (Et*3|(tt|)*29L) or "
          "torchtitan's lists of modules (default: as even as possible)"),
      ModelField(
          "zero_ranks", &Scenario::zero_ranks, "N",
          "Replicas that divide states by `zero` among themselves, if not all (hybrid sharding)"),
      ModelField(
          "zero", &Scenario::zero, "N",
          "What replicas divide: 1 optimizer state, 2 and gradients, 3 and weights (default 0)"),
      ModelField("flops_efficiency", &Scenario::flops_efficiency, "X",
                 "Part of the peak FLOP/s that matmuls reach (default 0.6 with `implementation` "
                 "penstock)"),
      ModelField(
          "bandwidth_efficiency", &Scenario::bandwidth_efficiency, "X",
          "Part of the bandwidth of memory and links (default 0.8 with `implementation` penstock)"),
      ModelField("link_efficiency", &Scenario::link_efficiency, "X",
                 "Part of the bandwidth of the links in a node (default `bandwidth_efficiency`)"),
      ModelField("network_efficiency", &Scenario::network_efficiency, "X",
                 "Part of the bandwidth between nodes (default `bandwidth_efficiency`)"),
      ModelField(
          "hidden_communication", &Scenario::hidden_communication, "X",
          "Part of the communication of `tensor` and `expert` that compute hides (default 0)"),
      ModelField("hidden_gradients", &Scenario::hidden_gradients, "X",
                 "Part of the sums of gradients and gathers of weights that compute hides"),
      ModelField("device_launch", &Scenario::device_launch, "T",
                 "Time of the device per kernel besides its work (2us)"),
      ModelField("host_launch", &Scenario::host_launch, "T",
                 "Time of the host per kernel, hidden while the device is busy (5us)"),
      ModelField("time_factor", &Scenario::time_factor, "X",
                 "Factor of all times, as 'penstock calibrate' fits it (default 1)"),
  };
  for (ScenarioField field :
       {ModelField("stage_tensor", &Scenario::stage_tensor, "N,...",
                   "Devices that divide each layer of a stage, by stage, if stages differ (2,2,4)"),
        ModelField("stage_data", &Scenario::stage_data, "N,...",
                   "Devices that divide the samples of each microbatch, by stage (1,2,1)"),
        ModelField("stage_recompute", &Scenario::stage_recompute, "WHAT,...",
                   "`recompute` by stage (full,none)")}) {
    field.is_joined = true;
    fields.push_back(std::move(field));
  }
  fields.push_back(
      ModelField("machine", &Scenario::machine, "FILE",
                 "A file with constants of the machine, such as `flops_efficiency`, that "
                 "'penstock calibrate' fitted to measured runs, or with measured costs of "
                 "'penstock profile'"));
  fields.back().takes_path = true;
  fields.back().with_model = WithModel::kEither;  // a profile is of its own model
  SetFitRanges(fields);
  for (ScenarioField& field : fields) {
    if (field.name == "model") {
      field.with_model = WithModel::kEither;
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

std::vector<ScenarioField> ImplementationFields() {
  std::vector<ScenarioField> fields = {
      ModelField("implementation", &Scenario::implementation, "NAME",
                 fmt::format("What computes the model: {} (default penstock)",
                             fmt::join(ImplementationNames(), ", ")),
                 ImplementationNames()),
      ModelField("attention", &Scenario::attention, "KERNEL",
                 "Kernel of attention: auto, flash, fused or unfused (default auto)",
                 List(kAttentionNames)),
      ModelField("cuda_graphs", &Scenario::cuda_graphs, "HOW",
                 "What CUDA graphs launch: none, partial (of each layer) or full (default none)",
                 List(kCudaGraphsNames)),
      ModelField("dispatcher", &Scenario::dispatcher, "HOW",
                 fmt::format("How tokens reach their experts: {} (default all-to-all)",
                             fmt::join(kDispatcherNames, ", ")),
                 List(kDispatcherNames)),
      ModelField("release", &Scenario::release, "YYYY-MM",
                 "Release of the implementation, where that matters (default: the newest)"),
      ModelField("expert_imbalance", &Scenario::expert_imbalance, "X",
                 "Tokens of the busiest rank's experts over the mean (default 1)"),
      ModelField("dropout", &Scenario::dropout, "", "Whether the model has dropout"),
      ModelField("deterministic", &Scenario::deterministic, "",
                 "Whether only kernels run whose sums have one order"),
      ModelField("fused_loss", &Scenario::fused_loss, "", "Whether one kernel computes the loss"),
      ModelField("fused_experts", &Scenario::fused_experts, "",
                 "Whether the matmuls of experts include activation and quantization"),
      ModelField("overlapped_experts", &Scenario::overlapped_experts, "",
                 "Whether the exchanges of experts run under another microbatch's compute"),
      ModelField("fp8_attention", &Scenario::fp8_attention, "", "Whether attention runs in 8 bits"),
      ModelField("linear_biases", &Scenario::linear_biases, "",
                 "Whether linear layers have biases"),
      ModelField("grouped_experts", &Scenario::grouped_experts, "",
                 "Whether one call computes the matmuls of all experts of a rank (default true)"),
      ModelField(
          "attention_mask", &Scenario::attention_mask, "",
          "Whether the data loader makes a mask of all pairs of tokens, as Megatron-LM's does"),
      ModelField(
          "fragmentation", &Scenario::fragmentation, "X",
          "Memory that the allocator holds besides what is allocated, as a part of it (default 0)"),
      ModelField("deferred_head", &Scenario::deferred_head, "N",
                 "Microbatches whose weight gradient of the head is computed after the pipeline"),
      ModelField("drops_tokens", &Scenario::drops_tokens, "",
                 "Whether experts take a fixed number of tokens and drop others"),
      ModelField("lora", &Scenario::lora, "",
                 "Whether weights are frozen and adapters are trained, whose cost is not counted"),
      ModelField(
          "layers_at_end_in_bf16", &Scenario::layers_at_end_in_bf16, "N",
          "Last layers whose matmuls stay in bf16 with a precision of 8 or 4 bits (default 0)"),
      ModelField("offload_modules", &Scenario::offload_modules, "MODULE,...",
                 "Modules of all layers whose tensors are in the memory of the host: attn_norm, "
                 "qkv_linear, "
                 "core_attn, attn_proj, mlp_norm, expert_fc1, moe_act"),
      ModelField(
          "offloaded_layers", &Scenario::offloaded_layers, "N",
          "Layers of the model whose activations wait in the memory of the host (default 0)"),
  };
  for (ScenarioField& field : fields) field.is_joined = field.name == "offload_modules";
  return fields;
}

std::vector<ScenarioField> PlaceFields() {
  std::vector<ScenarioField> fields = {
      ModelField("sites", &Scenario::sites, "N",
                 "Places far from each other that divide the nodes (default 1)"),
      ModelField("across_sites", &Scenario::across_sites, "WHAT",
                 "What sites divide: the ranks of the pipeline, or its replicas (data) (default "
                 "pipeline)",
                 List(kAcrossSitesNames)),
      ModelField("site_bandwidth", &Scenario::site_bandwidth, "B",
                 "Bandwidth of the link of each site, for all its devices (default 10Gbit/s)"),
      ModelField("site_latency", &Scenario::site_latency, "T",
                 "Time of a message between sites besides its bytes (default 10ms)"),
      ModelField("failures", &Scenario::failures, "T",
                 "Mean time between failures of one device (50000h): adds what checkpoints and "
                 "restarts cost"),
      ModelField("restart", &Scenario::restart, "T",
                 "Time from a failure until steps run again (default 10min)"),
      ModelField("storage_bandwidth", &Scenario::storage_bandwidth, "B",
                 "Bandwidth at which each device writes its share of a checkpoint (default 1GB/s)"),
  };
  fields.front().least = 1;
  fields.front().most = kMostSize;
  return fields;
}

std::vector<ScenarioField> SizeFields() {
  const auto row = [](std::string_view name, ScenarioMember member, std::string help) {
    ScenarioField field = ModelField(name, member, "N", std::move(help));
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

}  // namespace penstock
