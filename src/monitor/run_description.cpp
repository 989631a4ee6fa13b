#include "monitor/run_description.h"

#include "base/text/yaml_map.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

// Returns the layers of each stage of the model, as a run divides them.
std::vector<std::int64_t> LayersOfStages(const YamlMap& pipeline, double layers, int stages) {
  std::vector<std::int64_t> counts;
  for (const YAML::Node& count : pipeline.Node("stage_layers")) {
    counts.push_back(count.as<std::int64_t>(0));
  }
  if (!counts.empty()) return counts;
  const auto all = static_cast<std::int64_t>(layers);
  for (int stage = 0; stage < stages; ++stage) {
    counts.push_back(all / stages + (stage < all % stages ? 1 : 0));
  }
  return counts;
}

std::vector<RankWork> WorkOf(const Placement& placement, const std::vector<std::int64_t>& layers) {
  if (std::ssize(layers) != placement.chain_length()) return {};
  std::vector<RankWork> work(placement.ranks());
  for (int stage = 0; stage < placement.stages(); ++stage) {
    RankWork& own = work[placement.rank_of(stage)];
    const int in_model = placement.model_stage(stage);
    own.layers += layers[in_model];
    own.first_stages += in_model == 0 ? 1 : 0;
    own.last_stages += in_model + 1 == placement.chain_length() ? 1 : 0;
  }
  return work;
}

// Returns the text of the key, which may be empty or missing.
std::string TextOf(const YamlMap& map, const std::string& key) {
  const YAML::Node node = map.Node(key);
  return node.IsScalar() ? node.Scalar() : "";
}

Result<double> RequiredNumber(const YamlMap& map, const std::string& key) {
  PENSTOCK_TRY(const std::optional<double> value, map.Number(key));
  if (value) return *value;
  return InvalidArgument("line {}: the key {} is missing", map.Line(), key);
}

Result<RunDescription> DescriptionOf(const YAML::Node& root, const std::string& folder) {
  constexpr auto kEmptyIsMissing = YamlMap::Null::kMissing;
  PENSTOCK_TRY(const YamlMap run, YamlMap::Of(root, "the configuration", kEmptyIsMissing));
  PENSTOCK_TRY(const YamlMap model, YamlMap::Of(run.Node("model"), "model", kEmptyIsMissing));
  PENSTOCK_TRY(const YamlMap pipeline,
               YamlMap::Of(run.Node("pipeline"), "pipeline", kEmptyIsMissing));
  RunDescription description;
  description.name = TextOf(run, "name");
  const std::string csv = TextOf(pipeline, "csv");
  description.schedule = csv.empty() ? TextOf(pipeline, "schedule") : csv;
  PENSTOCK_TRY(const double steps, RequiredNumber(run, "steps"));
  description.steps = static_cast<std::int64_t>(steps);
  PENSTOCK_TRY(const auto seconds, run.Number("seconds"));
  description.seconds = seconds.value_or(0);
  PENSTOCK_TRY(const double batch, RequiredNumber(run, "batch"));
  PENSTOCK_TRY(const double microbatches, RequiredNumber(pipeline, "microbatches"));
  PENSTOCK_TRY(const double sequence, RequiredNumber(model, "sequence"));
  description.tokens_per_step = batch * microbatches * sequence;
  PENSTOCK_TRY(const double layers, RequiredNumber(model, "layers"));
  if (const auto schedule = LoadSchedule(folder + "/schedule.csv")) {
    const Placement& placement = schedule->placement;
    description.work =
        WorkOf(placement, LayersOfStages(pipeline, layers, placement.chain_length()));
  }
  return description;
}

}  // namespace

Result<RunDescription> ReadDescription(const std::string& folder) {
  const std::string path = folder + "/config.yaml";
  PENSTOCK_TRY(const YAML::Node root, LoadYaml(path));
  auto description = DescriptionOf(root, folder);
  if (description) return description;
  return InvalidArgument("{} is not the configuration of a run: {}", path,
                         description.error().line());
}

}  // namespace penstock
