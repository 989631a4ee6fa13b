#include "cli/options/model_options.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "analytic/published_models.h"
#include "base/index.h"
#include "base/units.h"
#include "cli/help/offered_values.h"
#include "cli/options/option_values.h"

namespace penstock {
namespace {

constexpr IntRange kPositive{.least = 1};

std::string InBytes(double bytes) { return FormatBytes(static_cast<std::int64_t>(bytes)); }

double Largest(const std::vector<double>& states) {
  return states.empty() ? 0 : *std::ranges::max_element(states);
}

// Names, or a file.
OfferedValues OfferedNames(const std::vector<std::string_view>& names) {
  OfferedValues offered;
  for (const std::string_view name : names) offered.values.push_back({std::string(name)});
  offered.paths = OfferedPaths::kFiles;
  return offered;
}

}  // namespace

void PricedModel::Define(CLI::App& app) {
  app.option_defaults()->group("Costs of a model");
  Offer(AddText(app, "--model", model,
                "Price a model in seconds and bytes: a config.json of Hugging Face, or one of " +
                    fmt::format("{}", fmt::join(PublishedModelNames(), ", ")))
            ->type_name("MODEL"),
        [] { return OfferedNames(PublishedModelNames()); });
  Offer(AddText(app, "--device", device,
                fmt::format("What trains it: a YAML file with its peaks, or one of {} (default {})",
                            fmt::join(DeviceNames(), ", "), kUsualDevice))
            ->type_name("DEVICE"),
        [] { return OfferedNames(DeviceNames()); });
  AddText(app, "--nodes", nodes,
          "Nodes and devices per node, both (default 1x8). --ranks is by default the number of "
          "devices, "
          "divided by --tensor and --data")
      ->type_name("NxG");
  AddInt(app, "--micro-batch-size", micro_batch_size, "Samples per microbatch (default 1)",
         kPositive);
  AddInt(app, "--sequence", sequence, "Tokens per sample (default 4096; 1024 for gpt2)", kPositive);
  Offer(AddText(app, "--precision", precision, "bf16 or f32 (default bf16, with fp32 masters)")
            ->type_name("DTYPE"),
        {kPrecisionNames.begin(), kPrecisionNames.end()});
  AddInt(app, "--tensor", tensor, "Devices that divide each layer (default 1)", kPositive);
  AddInt(app, "--data", data,
         "Replicas of the pipeline (default 1), each of which runs --microbatches", kPositive);
  AddInt(app, "--expert", expert,
         "Replicas that divide the experts of each layer, a divisor of --data (default 1)",
         kPositive);
  AddInt(app, "--zero", zero,
         "What replicas divide: 1 optimizer state, 2 and gradients, 3 and weights (default 0)");
  AddNumber(app, "--flops-efficiency", flops_efficiency,
            fmt::format("Part of the peak FLOP/s that matmuls and attention reach (default {})",
                        kFlopsEfficiency));
  AddNumber(
      app, "--bandwidth-efficiency", bandwidth_efficiency,
      fmt::format("Part of the bandwidth of memory and links (default {})", kBandwidthEfficiency));
  AddNumber(app, "--hidden-communication", hidden_communication,
            "Part of the communication of --tensor and --expert that compute hides (default 0)");
}

std::vector<std::string> PricedModel::Given() const {
  const std::pair<const char*, bool> options[] = {
      {"--model", model.has_value()},
      {"--device", device.has_value()},
      {"--nodes", nodes.has_value()},
      {"--micro-batch-size", micro_batch_size.has_value()},
      {"--sequence", sequence.has_value()},
      {"--precision", precision.has_value()},
      {"--tensor", tensor.has_value()},
      {"--data", data.has_value()},
      {"--expert", expert.has_value()},
      {"--zero", zero.has_value()},
      {"--flops-efficiency", flops_efficiency.has_value()},
      {"--bandwidth-efficiency", bandwidth_efficiency.has_value()},
      {"--hidden-communication", hidden_communication.has_value()}};
  std::vector<std::string> given;
  for (const auto& [option, is_given] : options) {
    if (is_given) given.emplace_back(option);
  }
  return given;
}

Result<int> PricedModel::Ranks() const {
  PENSTOCK_TRY(const ModelOnCluster loaded, Load());
  return PipelineRanks(loaded);
}

Result<std::vector<double>> StatesByRank(const ModelOnCluster& model, const Placement& placement,
                                         bool shards_vocabulary) {
  PipelineDivision division{.stages = placement.chain_length()};
  if (shards_vocabulary) division.vocabulary_ranks = placement.ranks();
  PENSTOCK_TRY(const ModelCosts costs, CostsOfModel(model, division));
  std::vector<double> states;
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    double bytes = 0;
    for (const int stage : placement.stages_of(rank)) {
      bytes += costs.states[Index(placement.model_stage(stage))].total();
    }
    states.push_back(bytes);
  }
  return states;
}

double MemoryLeft(const ModelOnCluster& model, const std::vector<double>& states) {
  return std::max(0.0, model.cluster.device.memory - Largest(states));
}

Placement PlacementOf(const Algorithm& algorithm, const ScheduleParams& params) {
  switch (algorithm.placement) {
    case PlacementForm::kLooped:
      return Placement::Looped(params.ranks, params.chunks);
    case PlacementForm::kVee:
    case PlacementForm::kZigzag:
      return Placement::Zigzag(params.ranks, params.chunks);
    case PlacementForm::kBidirectional:
      return Placement::Bidirectional(params.ranks);
    case PlacementForm::kLinear:
    case PlacementForm::kOther:
      break;
  }
  return Placement::Looped(params.ranks, params.chunks);
}

std::string DescribeModel(const ModelOnCluster& model, const std::vector<double>& states) {
  const double memory = model.cluster.device.memory, largest = Largest(states);
  std::string text = fmt::format(
      "weights, gradients and optimizer state of {} take up to {} of the {} of a device ({})",
      model.shape.name, InBytes(largest), InBytes(memory), model.cluster.device.name);
  if (largest > memory) text += ": add devices, or set --tensor, --expert or --zero";
  return text;
}

}  // namespace penstock
