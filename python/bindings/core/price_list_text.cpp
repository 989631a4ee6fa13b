// PriceList as text.
#include <fmt/ranges.h>

#include "bindings/core/price_list.h"

namespace penstock::python {
namespace {

// One map, without costs that have the value that a missing key has.
std::string EntryText(const StageCosts& stage, int layers, bool in_bytes) {
  std::vector<std::string> fields;
  if (layers != 1) fields.push_back(fmt::format("layers: {}", layers));
  for (const StageCost& cost : kStageCosts) {
    if (!cost.in_files || !cost.IsNeeded(stage)) continue;
    const double value = stage.*cost.value;
    fields.push_back(cost.is_memory() && in_bytes ? fmt::format("{}: {:.0f} B", cost.name, value)
                                                  : fmt::format("{}: {}", cost.name, value));
  }
  if (stage.saved_by_whole_backward != 0)
    fields.push_back(fmt::format("backward: {}", stage.Backward()));
  return fmt::format("- {{{}}}\n", fmt::join(fields, ", "));
}

// A word or path in quotes, which YAML reads as it is.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

std::string ModelText(const ModelRequest& model) {
  std::string text;
  const std::pair<const char*, const std::optional<std::string>*> words[] = {
      {"model", &model.model},
      {"device", &model.device},
      {"nodes", &model.nodes},
      {"precision", &model.precision}};
  for (const auto& [key, value] : words) {
    if (*value) text += fmt::format("{}: {}\n", key, Quoted(**value));
  }
  const std::pair<const char*, const std::optional<int>*> counts[] = {
      {"micro_batch_size", &model.micro_batch_size},
      {"sequence", &model.sequence},
      {"tensor", &model.tensor},
      {"data", &model.data},
      {"expert", &model.expert},
      {"zero", &model.zero}};
  for (const auto& [key, value] : counts) {
    if (*value) text += fmt::format("{}: {}\n", key, **value);
  }
  const std::pair<const char*, const std::optional<double>*> numbers[] = {
      {"flops_efficiency", &model.flops_efficiency},
      {"bandwidth_efficiency", &model.bandwidth_efficiency},
      {"hidden_communication", &model.hidden_communication}};
  for (const auto& [key, value] : numbers) {
    if (*value) text += fmt::format("{}: {}\n", key, **value);
  }
  return text;
}

std::string TopologyText(const Topology& topology) {
  std::string text = "topology:\n";
  for (const LinkLevel& level : topology.levels) {
    text += fmt::format("- {{level: {}, latency: {}", Quoted(level.name), level.latency);
    if (level.ranks != LinkLevel::kAllRanks) text += fmt::format(", ranks: {}", level.ranks);
    if (level.bandwidth != 0) text += fmt::format(", bandwidth: {}", level.bandwidth);
    if (level.shared) text += ", links: shared";
    if (level.half_duplex) text += ", duplex: half";
    text += "}\n";
  }
  return text;
}

}  // namespace

std::string PriceList::Text() const {
  std::string text;
  if (const auto* uniform = std::get_if<UniformCost>(&source_)) {
    text = fmt::format("cost: [{}, {}, {}, {}]\n", uniform->forward, uniform->backward_input,
                       uniform->backward_weight, uniform->kept_for_weight);
  } else if (const auto* stages = std::get_if<std::vector<StageCosts>>(&source_)) {
    text = "stage_costs:\n";
    for (const StageCosts& stage : *stages) text += EntryText(stage, 1, in_bytes_);
  } else if (const auto* layers = std::get_if<std::vector<LayerGroup>>(&source_)) {
    text = "layer_costs:\n";
    for (const LayerGroup& group : *layers) text += EntryText(group.costs, group.layers, in_bytes_);
  } else {
    text = ModelText(*model());
  }
  // A model's costs are in seconds; times next to it need a unit.
  const bool has_times = comm_ || !prices_.empty();
  if (!time_unit_.empty() && (!model() || has_times))
    text += fmt::format("time_unit: {}\n", time_unit_);
  if (comm_) text += fmt::format("comm: {}\n", *comm_);
  if (overlap_) text += fmt::format("overlap: {}\n", *overlap_);
  if (transfers_) text += fmt::format("transfers: {}\n", *transfers_);
  if (message_bytes_) text += fmt::format("message_bytes: {}\n", *message_bytes_);
  if (!prices_.empty()) text += fmt::format("price: [{}]\n", fmt::join(prices_, ", "));
  if (!topology_.empty()) text += TopologyText(topology_);
  return text;
}

}  // namespace penstock::python
