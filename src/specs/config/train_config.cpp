#include "config/train_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "base/files.h"
#include "base/text/deprecated_names.h"
#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "base/text/yaml_map.h"
#include "base/units.h"
#include "config/config_fields.h"
#include "config/key_hint.h"
#include "config/parameter_groups.h"
#include "model_spec/huggingface_config.h"
#include "tokens/kinds/open_tokenizer.h"

namespace penstock {
namespace {

// A key with its value from the file or from an override.
struct Entry {
  std::string key;
  YAML::Node node;    // from the file
  std::string text;   // from an override
  std::string place;  // "a.yaml: line 3"; empty for an override
};

constexpr std::string_view kGroups = "optimizer.groups";
// A key of earlier versions, whose runs have it in their config.yaml.
constexpr std::string_view kTensorBoard = "tensorboard";

bool IsSection(std::string_view key, const std::vector<Field>& fields) {
  return std::any_of(fields.begin(), fields.end(), [&](const Field& field) {
    return field.key.size() > key.size() && field.key[key.size()] == '.' &&
           field.key.starts_with(key);
  });
}

// Appends the entries of the file in order. Their keys include the section.
Status Collect(const YAML::Node& root, std::string_view where, const std::vector<Field>& fields,
               std::vector<Entry>& entries) {
  const auto collect = [&](const YamlMap& map, const std::string& section,
                           const auto& self) -> Status {
    for (const std::string& name : map.Keys()) {
      const YAML::Node node = map.Node(name);
      std::string key = section + name;
      // A schedule with its options: {name: interleaved, group: 4}.
      if (key == "pipeline.schedule" && node.IsMap()) {
        PENSTOCK_TRY(const YamlMap options, YamlMap::Of(node, key, YamlMap::Null::kMissing));
        for (const std::string& option : options.Keys()) {
          entries.push_back({option == "name" ? key : section + option, options.Node(option), "",
                             fmt::format("{}: line {}", where, options.LineOf(option))});
        }
      } else if (section.empty() && node.IsMap()) {
        PENSTOCK_TRY(const YamlMap inner, YamlMap::Of(node, key, YamlMap::Null::kMissing));
        PENSTOCK_TRY_STATUS(self(inner, key + ".", self));
      } else if (!(section.empty() && node.IsNull() && IsSection(key, fields))) {
        entries.push_back(
            {std::move(key), node, "", fmt::format("{}: line {}", where, map.LineOf(name))});
      }
    }
    return {};
  };
  PENSTOCK_TRY(const YamlMap map, YamlMap::Of(root, "the configuration", YamlMap::Null::kMissing));
  return collect(map, "", collect);
}

Result<Entry> ParseOverride(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return InvalidArgument("{} is neither an option nor key=value", Quote(text));
  }
  return Entry{text.substr(0, equals), {}, text.substr(equals + 1), ""};
}

// Returns the other models that have this key, separated by commas.
std::string ModelsWith(std::string_view key, std::string_view model) {
  std::vector<std::string_view> names;
  for (const std::string_view name : ModelNames()) {
    if (name == model || !key.starts_with("model.")) continue;
    for (const Field& field : MakeModelOptions(name)->Fields()) {
      if (field.key == LastWord(key)) names.push_back(name);
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

class ConfigReader {
 public:
  ConfigReader(TrainConfig& config, bool any_model)
      : config_(config), any_model_(any_model), fields_(FieldsOf(config)) {}

  Status Read(std::string_view text, std::string_view where) {
    auto root = ParseYaml(std::string(text));
    if (!root) return tl::unexpected(In(where, root.error()));
    if (root->IsNull()) return {};
    if (!root->IsMap()) {
      return InvalidArgument("{}: keys with values are needed, such as 'steps: 300'", where);
    }
    const Status status = Collect(*root, where, fields_.all, entries_);
    return status ? status : tl::unexpected(In(where, status.error()));
  }

  Status Override(const std::string& text) {
    PENSTOCK_TRY(Entry entry, ParseOverride(text));
    PENSTOCK_TRY(const Field* field, Find(entry.key, true, /*unknown_is_error=*/false));
    if (field != nullptr) entry.key = field->key;
    entries_.push_back(std::move(entry));
    return {};
  }

  // Sets the model first, because the valid keys depend on it.
  Status Apply() {
    PENSTOCK_TRY_STATUS(ReadModelFiles());
    KeepOverridingSchedule();
    for (const Entry& entry : entries_) {
      if (entry.key == "model.name") PENSTOCK_TRY_STATUS(Set(entry));
    }
    fields_ = FieldsOf(config_);
    if (fields_.options == nullptr && !any_model_) return CheckModel(config_.model);
    for (const Entry& entry : entries_) {
      // Errors about other keys name the last one of these.
      if (entry.key != "model.name") PENSTOCK_TRY_STATUS(Set(entry));
    }
    if (fields_.options != nullptr) StoreOptions(fields_, config_);
    return UseTokenizerOfModel();
  }

 private:
  // The key of a config.json in place of the section.
  static constexpr std::string_view kModelFile = "model";

  // An override replaces the file's section, except for the length of a sequence.
  Status ReadModelFiles() {
    bool is_overridden = false;
    for (const Entry& entry : entries_) {
      if (entry.key != kModelFile) continue;
      PENSTOCK_TRY_STATUS(ReadModel(entry));
      is_overridden = is_overridden || entry.place.empty();
    }
    // Not std::erase_if: an assignment of YAML nodes changes the tree that both are in.
    std::vector<Entry> kept;
    for (const Entry& entry : entries_) {
      const bool is_replaced = is_overridden && !entry.place.empty() &&
                               entry.key.starts_with("model.") && entry.key != "model.sequence";
      if (entry.key != kModelFile && !is_replaced) kept.push_back(entry);
    }
    entries_.swap(kept);
    return {};
  }

  // An override that names a schedule replaces a CSV of the file, and the other way round.
  void KeepOverridingSchedule() {
    constexpr std::string_view kKeys[] = {"pipeline.csv", "pipeline.schedule"};
    const auto is_overridden = [&](std::string_view key) {
      return std::ranges::any_of(entries_, [&](const Entry& entry) {
        return entry.key == key && entry.place.empty() && !entry.text.empty();
      });
    };
    for (const int other : {0, 1}) {
      if (!is_overridden(kKeys[1 - other]) || is_overridden(kKeys[other])) continue;
      std::vector<Entry> kept;  // as in ReadModelFiles
      for (const Entry& entry : entries_) {
        if (entry.key != kKeys[other]) kept.push_back(entry);
      }
      entries_.swap(kept);
    }
  }

  Status ReadModel(const Entry& entry) {
    const bool has_text = entry.place.empty() || entry.node.IsScalar();
    config_.places[std::string(kModelFile)] = entry.place;
    if (!has_text)
      return InvalidParameter(kModelFile, ": a map or the path of a config.json is needed");
    const std::string path = entry.place.empty() ? entry.text : entry.node.Scalar();
    auto model = ReadHuggingFaceConfig(path);
    if (!model) return InvalidParameter(kModelFile, ": {}", model.error().line());
    config_.model = *std::move(model);
    config_.weights = HasHuggingFaceWeights(path) ? path : "";
    model_folder_ = path;
    return {};
  }

  // A model's folder brings its tokenizer. Other weights bring theirs, see FollowWeights.
  Status UseTokenizerOfModel() {
    const std::string& folder = model_folder_;
    const std::string& weights = config_.weights;
    const bool is_of_weights = !weights.empty() && weights != folder && HasTokenizer(weights);
    if (folder.empty() || !config_.data.tokenizer.empty() || is_of_weights) return {};
    auto tokenizer = TokenizerOfFolder(folder);
    if (!tokenizer)
      return InvalidParameter(kModelFile, ": {}, or set data.tokenizer", tokenizer.error().line());
    config_.data.tokenizer = *std::move(tokenizer);
    return {};
  }

  // Finds a field by its key, or also by the last word of its key with `shorten`. Returns null for
  // an unknown key unless `unknown_is_error`.
  Result<const Field*> Find(std::string_view given, bool shorten, bool unknown_is_error) const {
    given = CurrentKey(given);
    const std::size_t section = given.size() - LastWord(given).size();
    const std::string key =
        fmt::format("{}{}", given.substr(0, section), CurrentName(given.substr(section)));
    const Field* found = nullptr;
    for (const Field& field : fields_.all) {
      if (field.key == key) return &field;
      if (!shorten || LastWord(field.key) != key) continue;
      if (found != nullptr) {
        return InvalidArgument("'{}' is both '{}' and '{}': give the whole key", key, found->key,
                               field.key);
      }
      found = &field;
    }
    if (found != nullptr || !unknown_is_error) return found;
    if (key == kTensorBoard) {
      return InvalidArgument(
          "unknown key {}: 'python -m penstock.tensorboard RUN_FOLDER' writes event files",
          Quote(key));
    }
    const std::string others = ModelsWith(key, config_.model.name);
    if (!others.empty()) {
      return InvalidArgument(
          "unknown key {}: models {} have it, and model.name is {}; set another one or remove the "
          "key",
          Quote(key), others, config_.model.name);
    }
    return InvalidArgument("unknown key {}: {}", Quote(key), KeyHint(key, fields_.all));
  }

  // Keeps an option of a model that this program does not know as text.
  bool SetUnknownOption(const Entry& entry) {
    if (fields_.options != nullptr || !any_model_ || !entry.key.starts_with("model.")) return false;
    if (Find(entry.key, false, true)) return false;
    const std::string value = entry.node.IsScalar() ? entry.node.Scalar() : "";
    config_.model.options[std::string(LastWord(entry.key))] = value;
    return true;
  }

  Status Set(const Entry& entry) {
    if (SetUnknownOption(entry)) return {};
    if (entry.key == kTensorBoard && entry.node.IsScalar() && entry.node.Scalar() == "false") {
      return {};
    }
    const auto field = Find(entry.key, entry.place.empty(), true);
    if (field) {
      const std::string& key = (*field)->key;
      config_.places[key] = entry.place;
      if (!entry.place.empty()) config_.places.emplace(key.substr(0, key.find('.')), entry.place);
    }
    Status status = field ? SetValue(**field, entry) : Status(tl::unexpected(field.error()));
    if (status || entry.place.empty()) return status;
    return tl::unexpected(In(entry.place, status.error()));
  }

  // 0 stands for "auto" in memory, not in what users write for ranks, chunks and the like.
  static Status SetText(const Field& field, std::string_view text) {
    const bool is_count = std::holds_alternative<int*>(field.value) && field.range.automatic &&
                          !field.key.starts_with("model.");
    const Result<int> number = ParseInt(text);
    if (is_count && number && *number < 1) {
      return InvalidParameter(field.key, ": {} is out of range: at least 1, or 'auto'", text);
    }
    return SetField(field, text);
  }

  static Status SetValue(const Field& field, const Entry& entry) {
    if (entry.place.empty()) return SetText(field, entry.text);
    const YAML::Node& node = entry.node;
    if (node.IsNull()) {
      if (IsText(field)) return SetField(field, "");
      return InvalidParameter(field.key, ": a value is missing");
    }
    if (node.IsScalar()) return SetText(field, node.Scalar());
    if (field.key == kGroups && node.IsSequence()) {
      const auto groups = ReadParameterGroups(node);
      if (!groups) return InvalidParameter(kGroups, ": {}", groups.error().line());
      return SetField(field, FormatParameterGroups(*groups));
    }
    if (node.IsMap() || !IsList(field)) {
      return InvalidParameter(field.key, ": one value is needed, not a {}",
                              node.IsMap() ? "map" : "list");
    }
    std::vector<std::string_view>
        items;  // copies may take much more memory than the file: [*a, *a]
    for (const YAML::Node& item : node) {
      if (!item.IsScalar()) return InvalidParameter(field.key, ": a list of numbers is needed");
      items.push_back(item.Scalar());
    }
    return SetItems(field, items);
  }

  TrainConfig& config_;
  bool any_model_;
  ConfigFields fields_;
  std::vector<Entry> entries_;
  std::string model_folder_;  // empty: none
};

Status CheckConfig(const TrainConfig& config) {
  if (config.name.empty() || config.name == "." || config.name == ".." ||
      config.name.find('/') != std::string::npos) {
    return InvalidParameter("name", ": '{}' is not the name of a folder", config.name);
  }
  if (config.folder.empty())
    return InvalidParameter("folder", ": a folder for the runs is required");
  const OptimizerConfig& optimizer = config.optimizer;
  for (const auto& [key, value] : {std::pair("optimizer.beta1", optimizer.beta1),
                                   std::pair("optimizer.beta2", optimizer.beta2),
                                   std::pair("optimizer.momentum", optimizer.momentum),
                                   std::pair("optimizer.ema", optimizer.ema)}) {
    if (value >= 1) return InvalidParameter(key, "{}: must be below 1", value);
  }
  if (!config.pipeline.csv.empty() && config.pipeline.schedule != "auto") {
    return tl::unexpected(Located({ErrorCode::kInvalidArgument,
                                   fmt::format("'{}': give either a name or pipeline.csv '{}'",
                                               config.pipeline.schedule, config.pipeline.csv),
                                   "pipeline.schedule"},
                                  config, {"pipeline.csv"}));
  }
  for (const auto& [key, held] :
       {std::pair("recompute.hold", config.recompute.hold),
        std::pair("recompute.hold_for_weight", config.recompute.hold_for_weight)}) {
    if (const auto bytes = ParseSavedBytes(held); !bytes) {
      return InvalidParameter(key, ": {}", bytes.error().line());
    }
  }
  if (const auto link = LinkOf(config.parallel); !link) return tl::unexpected(link.error());
  if (config.max_memory != "auto" && config.max_memory != "none") {
    if (const auto bytes = ParseBytes(config.max_memory); !bytes || *bytes < 1) {
      return InvalidParameter("max_memory", "'{}': auto, none, or bytes with a unit (16GiB)",
                              config.max_memory);
    }
  }
  return {};
}

// Replaces the text of the groups by its canonical form.
Status ReadGroups(OptimizerConfig& config) {
  const auto groups = ParseParameterGroups(config.groups);
  if (!groups) return InvalidParameter(kGroups, ": {}", groups.error().line());
  config.groups = FormatParameterGroups(*groups);
  return {};
}

Result<TrainConfig> Parse(std::string_view text, std::string_view where,
                          const std::vector<std::string>& overrides, bool any_model) {
  TrainConfig config;
  ConfigReader reader(config, any_model);
  PENSTOCK_TRY_STATUS(reader.Read(text, where));
  for (const std::string& each : overrides) PENSTOCK_TRY_STATUS(reader.Override(each));
  const auto finish = [&]() -> Status {
    PENSTOCK_TRY_STATUS(reader.Apply());
    config.model.seed = config.seed;
    // Experts are divided among replicas, so there are at least as many.
    config.parallel.data = std::max(config.parallel.data, config.parallel.expert);
    PENSTOCK_TRY_STATUS(ReadGroups(config.optimizer));
    PENSTOCK_TRY_STATUS(CheckConfig(config));
    return any_model ? Status() : CheckModel(config.model);
  };
  if (const Status status = finish(); !status) {
    return tl::unexpected(Located(status.error(), config));
  }
  return config;
}

}  // namespace

Result<TrainConfig> ParseTrainConfig(std::string_view text, std::string_view where,
                                     const std::vector<std::string>& overrides) {
  return Parse(text, where, overrides, /*any_model=*/false);
}

Result<TrainConfig> LoadRunConfig(const std::string& path) {
  PENSTOCK_TRY(const std::string text, ReadFile(path, kYamlFile));
  return Parse(text, path, {}, /*any_model=*/true);
}

Error Located(Error error, const TrainConfig& config,
              std::initializer_list<std::string_view> related) {
  const auto is_place = [&](const auto& key) {
    return !key.second.empty() && error.where.starts_with(key.second);
  };
  if (std::ranges::any_of(config.places, is_place)) return error;
  const std::string key = error.parameter;
  std::vector<std::string_view> keys = {key};
  keys.insert(keys.end(), related);
  keys.push_back(std::string_view(key).substr(0, key.find('.')));
  for (const std::string_view each : keys) {
    const auto place = config.places.find(each);
    if (place == config.places.end()) continue;
    return place->second.empty() ? error : In(place->second, std::move(error));
  }
  return error;
}

Result<TrainConfig> LoadTrainConfig(const std::string& path,
                                    const std::vector<std::string>& overrides) {
  PENSTOCK_TRY(const std::string text, ReadFile(path, kYamlFile));
  return ParseTrainConfig(text, path, overrides);
}

bool WritesCheckpoints(const TrainConfig& config) {
  return config.checkpoint.every > 0 || config.checkpoint.best || config.optimizer.ema > 0;
}

UpdateRule UpdateRuleOf(const OptimizerConfig& config) {
  UpdateRule rule;
  rule.clip = config.clip;
  rule.skip_nonfinite = config.nonfinite == "skip";
  rule.post_validation = config.post_validation;
  rule.nonfinite_remedy =
      "use a smaller optimizer.lr, or optimizer.nonfinite=skip to skip such steps";
  return rule;
}

Result<std::optional<LinkSpeed>> LinkOf(const ParallelConfig& parallel) {
  if (parallel.link.empty()) return std::optional<LinkSpeed>();
  const auto speed = ParseLinkSpeed(parallel.link);
  if (!speed) return InvalidParameter("parallel.link", ": {}", speed.error().line());
  return std::optional(*speed);
}

Result<std::int64_t> ParseSavedBytes(std::string_view text) {
  if (text == "all") return std::numeric_limits<std::int64_t>::max();
  if (text == "least") return 0;
  const auto bytes = ParseBytes(text);
  if (!bytes || *bytes < 1) {
    return InvalidArgument("{} is none of: all, least, or bytes with a unit (1.5MiB)", Quote(text));
  }
  return *bytes;
}

std::vector<ConfigKey> KeysOf(const TrainConfig& config) {
  TrainConfig copy = config;
  const ConfigFields fields = FieldsOf(copy);
  std::vector<ConfigKey> keys;
  for (std::size_t i = 0; i < fields.all.size(); ++i) {
    const Field& field = fields.all[i];
    const bool of_model = i >= fields.first_of_model && i < fields.end_of_model;
    std::vector<std::string_view> choices = Words(field.range.choices);
    if (std::holds_alternative<bool*>(field.value)) choices = {"true", "false"};
    keys.push_back({field.key, FieldYaml(field), field.changes, std::string(field.help), of_model,
                    std::move(choices)});
  }
  return keys;
}

std::vector<KeyDifference> DifferentKeys(const TrainConfig& one, const TrainConfig& other) {
  std::map<std::string, std::string> values;
  for (const ConfigKey& key : KeysOf(one)) values[key.key] = key.value;
  std::vector<KeyDifference> different;
  for (const ConfigKey& key : KeysOf(other)) {
    const auto before = values.find(key.key);
    if (before != values.end() && before->second == key.value) continue;
    different.push_back(
        {key.key, before == values.end() ? "none" : before->second, key.value, key.changes});
  }
  return different;
}

std::vector<std::string> ChangedKeys(const TrainConfig& config) {
  const auto arguments = [](TrainConfig of) {
    std::vector<std::string> all;
    for (const Field& field : FieldsOf(of).all) {
      all.push_back(fmt::format("{}={}", field.key, FieldText(field)));
    }
    return all;
  };
  const std::string name = "model.name=" + config.model.name;
  const auto defaults = arguments(ParseTrainConfig("", "", {name}).value_or(TrainConfig()));
  std::vector<std::string> changed;
  if (config.model.name != ModelConfig().name) changed.push_back(name);
  for (const std::string& argument : arguments(config)) {
    if (std::ranges::count(defaults, argument) == 0) changed.push_back(argument);
  }
  return changed;
}

std::string ToYaml(const TrainConfig& config) {
  std::string text;
  std::string open_section;
  for (const ConfigKey& key : KeysOf(config)) {
    const std::size_t dot = key.key.find('.');
    const std::string section = dot == std::string::npos ? "" : key.key.substr(0, dot);
    if (section != open_section) text += fmt::format("{}:\n", section);
    open_section = section;
    text += fmt::format("{}{}: {}\n", section.empty() ? "" : "  ", LastWord(key.key), key.value);
  }
  return text;
}

}  // namespace penstock
