#include "huggingface/config_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/mutex.h"
#include "base/text/fields.h"
#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "base/text/strict_json.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

constexpr int kDeepest = 16;            // levels of nesting
constexpr double kMostWhole = 1e9;      // of sizes, so that products of several fit in 64 bits
constexpr std::size_t kMostNamed = 10;  // unknown keys that a line names

// Keys that no class has as a field, and that are read.
constexpr std::string_view kCommonKeys = "layer_types per_layer_config";
constexpr std::string_view kRopeKeys =
    "rope_scaling rope_theta partial_rotary_factor original_max_position_embeddings";

bool IsWord(std::string_view words, std::string_view word) {
  const std::vector<std::string_view> all = Words(words);
  return std::ranges::find(all, word) != all.end();
}

// Returns what a value must be, or an empty text if it is that.
std::string NeededFor(const ClassKey& key, const Json& value) {
  switch (key.kind) {
    case KeyKind::kWhole:
      if (value.is_number_integer() && value.get<double>() >= static_cast<double>(key.least) &&
          value.get<double>() <= kMostWhole) {
        return "";
      }
      return fmt::format("a whole number from {} to {:.0f} is needed", key.least, kMostWhole);
    case KeyKind::kNumber:
      return value.is_number() && std::isfinite(value.get<double>()) ? "" : "a number is needed";
    case KeyKind::kFlag:
      return value.is_boolean() ? "" : "true or false is needed";
    case KeyKind::kText:
      return value.is_string() ? "" : "a text is needed";
    case KeyKind::kOnly:
      if (value == Json::parse(key.otherwise)) return "";
      return fmt::format("{} is not supported, only {}", Quote(value.dump()), key.otherwise);
    case KeyKind::kAny:
      break;
  }
  return "";
}

// Renames aliases, as transformers sets them: after the keys that they stand for.
void ReplaceAliases(const ConfigClass& type, Json& values) {
  for (const auto& [alias, key] : type.aliases) {
    const auto found = values.find(alias);
    if (found == values.end()) continue;
    Json value = *found;
    values.erase(found);
    values[std::string(key)] = std::move(value);
  }
}

Status CompleteKey(const ClassKey& key, Json& values) {
  const std::string name(key.name);
  if (!values.contains(name)) {
    values[name] = Json::parse(key.otherwise);
    return {};
  }
  const Json& value = values[name];
  if (value.is_null() && key.may_be_null) return {};
  const std::string needed = NeededFor(key, value);
  if (needed.empty()) return {};
  return InvalidParameter(name, ": {}", needed);
}

// Layers may be of several types in other models. Every class checks their number.
Status CheckLayerTypes(const Json& values) {
  const auto types = values.find("layer_types");
  if (types == values.end() || types->is_null()) return {};
  const char* const count = values.contains("n_layer") ? "n_layer" : "num_hidden_layers";
  const auto layers = values.at(count).get<std::int64_t>();
  const auto is_full = [](const Json& type) { return type == "full_attention"; };
  if (types->is_array() && std::ssize(*types) == layers && std::ranges::all_of(*types, is_full)) {
    return {};
  }
  return InvalidParameter("layer_types",
                          ": only \"full_attention\" is supported, once for each of the {} layers",
                          layers);
}

Status CheckRope(const Json& values) {
  for (const char* const key : {"rope_parameters", "rope_scaling"}) {
    const auto found = values.find(key);
    if (found == values.end() || found->is_null() || found->is_object()) continue;
    return InvalidParameter(
        key, ": {} is not an object, such as {{\"rope_type\": \"linear\", \"factor\": 2.0}}",
        Quote(found->dump()));
  }
  return {};
}

Status CheckCombinations(const ConfigClass& type, const Json& values) {
  PENSTOCK_TRY_STATUS(CheckLayerTypes(values));
  if (type.rope_theta > 0) PENSTOCK_TRY_STATUS(CheckRope(values));
  const auto layers = values.find("per_layer_config");
  if (layers != values.end() && !layers->is_null() && !layers->empty()) {
    return InvalidParameter("per_layer_config",
                            ": layers with settings of their own are not supported");
  }
  const auto size = [&](const char* key) { return values.at(key).get<std::int64_t>(); };
  if (type.heads_divide_size && size("hidden_size") % size("num_attention_heads") != 0) {
    return InvalidParameter("num_attention_heads",
                            ": {} does not divide hidden_size {}, which {} needs",
                            size("num_attention_heads"), size("hidden_size"), type.name);
  }
  if (!type.is_latent) return {};
  const auto expect = [&](const char* key, const char* other) -> Status {
    const auto found = values.find(key);
    if (found == values.end() || found->is_null() || *found == values.at(other)) return {};
    return InvalidParameter(key, ": {} is not {} {}, which {} needs", Quote(found->dump()), other,
                            values.at(other).dump(), type.name);
  };
  PENSTOCK_TRY_STATUS(expect("num_key_value_heads", "num_attention_heads"));
  return IsWord(type.without_effect, "head_dim") ? Status()
                                                 : expect("head_dim", "qk_rope_head_dim");
}

std::vector<std::string> UnknownKeys(const ConfigClass& type, const Json& values) {
  std::vector<std::string> unknown;
  for (const auto& [name, value] : values.items()) {
    const bool is_key = std::ranges::find(type.keys, name, &ClassKey::name) != type.keys.end();
    if (is_key || IsWord(type.without_effect, name) || IsWord(CommonKeysWithoutEffect(), name) ||
        IsWord(kCommonKeys, name) || (type.rope_theta > 0 && IsWord(kRopeKeys, name))) {
      continue;
    }
    unknown.push_back(name);
  }
  return unknown;
}

// Returns the name, and a key of the class that it may be mistyped for.
std::string NameOf(const std::string& unknown, const ConfigClass& type) {
  std::vector<std::string_view> known;
  for (const ClassKey& key : type.keys) known.push_back(key.name);
  const std::string hint = DidYouMean(unknown, known);
  return hint.empty() ? Quote(unknown) : fmt::format("{} ({})", Quote(unknown), hint);
}

// A command may read a file several times.
void PrintOnce(const std::string& line) {
  static Mutex mutex;
  static std::set<std::string> printed;
  const MutexLock lock(mutex);
  if (printed.insert(line).second) fmt::print(stderr, "{}", line);
}

}  // namespace

Result<ConfigFile> ParseConfigFile(std::string_view text) {
  ConfigFile file;
  PENSTOCK_TRY(file.values, ParseStrictJson(text, kDeepest));
  const auto type = file.values.find("model_type");
  if (type == file.values.end() || !type->is_string()) {
    return InvalidParameter("model_type", "is missing");
  }
  file.model_type = type->get<std::string>();
  file.type = FindConfigClass(file.model_type);
  if (file.type == nullptr) return file;
  ReplaceAliases(*file.type, file.values);
  file.unknown = UnknownKeys(*file.type, file.values);
  for (const ClassKey& key : file.type->keys) {
    PENSTOCK_TRY_STATUS(CompleteKey(key, file.values));
  }
  PENSTOCK_TRY_STATUS(CheckCombinations(*file.type, file.values));
  return file;
}

Result<std::int64_t> LeadingDenseLayers(const Json& values) {
  const Json& given = values.at("mlp_only_layers");
  if (given.is_null()) return 0;
  const auto layers = values.at("num_hidden_layers").get<std::int64_t>();
  std::set<std::int64_t> dense;
  bool are_numbers = given.is_array();
  for (std::size_t i = 0; are_numbers && i < given.size(); ++i) {
    are_numbers = given[i].is_number_integer();
    // A number that no layer has is one of no effect.
    const double layer = are_numbers ? given[i].get<double>() : -1;
    if (layer >= 0 && layer < static_cast<double>(layers))
      dense.insert(given[i].get<std::int64_t>());
  }
  if (!are_numbers)
    return InvalidParameter("mlp_only_layers", ": a list of whole numbers is needed");
  const std::int64_t count = std::ssize(dense);
  if (count > 0 && *dense.rbegin() != count - 1) {
    return InvalidParameter("mlp_only_layers",
                            ": only the first layers can be without experts, as [0, 1]");
  }
  return count;
}

void ReportUnknownKeys(const ConfigFile& file, std::string_view path) {
  if (file.unknown.empty()) return;
  std::vector<std::string> names;
  for (const std::string& key : file.unknown) {
    if (names.size() < kMostNamed) names.push_back(NameOf(key, *file.type));
  }
  const std::size_t others = file.unknown.size() - names.size();
  PrintOnce(fmt::format("penstock: {}: keys without effect: {}{}\n", Printable(path),
                        fmt::join(names, ", "),
                        others > 0 ? fmt::format(" and {} more", others) : ""));
}

}  // namespace penstock
