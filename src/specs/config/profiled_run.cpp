#include "config/profiled_run.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace penstock {
namespace {

// In addition to the keys of the model.
constexpr std::array<std::string_view, 14> kProfileKeys = {"batch",
                                                           "device",
                                                           "device_graphs",
                                                           "device_parts",
                                                           "precision",
                                                           "exact",
                                                           "fuse",
                                                           "recompute.hold",
                                                           "recompute.hold_for_weight",
                                                           "recompute.modules",
                                                           "optimizer.name",
                                                           "optimizer.gradient_dtype",
                                                           "optimizer.ema",
                                                           "data.document_mask"};

std::string WithoutQuotes(const std::string& value) {
  const bool is_quoted = value.size() >= 2 && value.front() == '"' && value.back() == '"';
  return is_quoted ? value.substr(1, value.size() - 2) : value;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> KeysOfProfile(const TrainConfig& config) {
  std::vector<std::pair<std::string, std::string>> keys;
  for (const ConfigKey& key : KeysOf(config)) {
    const bool of_model = key.key.starts_with("model.") && key.key != "model.layers";
    if (of_model || std::ranges::find(kProfileKeys, key.key) != kProfileKeys.end()) {
      keys.emplace_back(key.key, WithoutQuotes(key.value));
    }
  }
  return keys;
}

Status CheckCanProfile(const TrainConfig& config) {
  const auto dense = config.model.options.find("dense_layers");
  const std::pair<const char*, bool> others[] = {
      {"weights", !config.weights.empty()},
      {"compiled", !config.compiled.empty()},
      {"parallel.shard_vocabulary", config.parallel.shard_vocabulary},
      {"parallel.zero", config.parallel.zero >= 2},
      {"parallel.expert", config.parallel.expert > 1},
      {"parallel.tensor", config.parallel.tensor > 1},
      {"parallel.context", config.parallel.context > 1},
      {"parallel.link", !config.parallel.link.empty()},
      {"data.lengths", !config.data.lengths.empty()},
      {"pipeline.slices", config.pipeline.slices > 1},
      {"model.dense_layers", dense != config.model.options.end() && dense->second != "0"}};
  for (const auto& [key, is_set] : others) {
    if (!is_set) continue;
    return InvalidParameter(key,
                            ": a profile is of a model by its sizes, with equal layers and whole "
                            "microbatches; leave it "
                            "out");
  }
  return {};
}

std::string UpdatePassOf(const OptimizerConfig& optimizer) {
  const bool early = optimizer.post_validation || !UpdateRuleOf(optimizer).needs_norm();
  return early ? "optimizer=post-validation" : "optimizer";
}

}  // namespace penstock
