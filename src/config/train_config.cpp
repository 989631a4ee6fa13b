#include "config/train_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <utility>

#include "base/files.h"
#include "base/text/deprecated_names.h"
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
  std::string place;  // "a.yaml: line 3: "; empty for an override
};

constexpr std::string_view kGroups = "optimizer.groups";

// The place of each key in the file, for errors.
using Places = std::map<std::string, std::string, std::less<>>;

// Returns the position of `key` as a whole word in `text`, or npos.
std::size_t FindKey(std::string_view text, std::string_view key) {
  const auto in_key = [&](std::size_t at) {
    return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) != 0 ||
                                text[at] == '_' || text[at] == '.');
  };
  std::size_t found = text.find(key);
  while (found != std::string_view::npos &&
         ((found > 0 && in_key(found - 1)) || in_key(found + key.size()))) {
    found = text.find(key, found + 1);
  }
  return found;
}

// Prepends the place of the first key that the error names.
Status WithPlace(Status status, const Places& places) {
  if (status) return status;
  const std::string& message = status.error().line();
  std::size_t first = std::string::npos;
  std::string_view place;
  for (const auto& [key, where] : places) {
    const std::size_t found = FindKey(message, key);
    if (found >= first) continue;
    first = found;
    place = where;
  }
  return MakeError(status.error().code, "{}{}", place, message);
}

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
                             fmt::format("{}: line {}: ", where, options.LineOf(option))});
        }
      } else if (section.empty() && node.IsMap()) {
        PENSTOCK_TRY(const YamlMap inner, YamlMap::Of(node, key, YamlMap::Null::kMissing));
        PENSTOCK_TRY_STATUS(self(inner, key + ".", self));
      } else if (!(section.empty() && node.IsNull() && IsSection(key, fields))) {
        entries.push_back(
            {std::move(key), node, "", fmt::format("{}: line {}: ", where, map.LineOf(name))});
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
  explicit ConfigReader(TrainConfig& config) : config_(config), fields_(FieldsOf(config)) {}

  Status Read(std::string_view text, std::string_view where) {
    auto root = ParseYaml(std::string(text));
    if (!root) return InvalidArgument("{}: {}", where, root.error().line());
    if (root->IsNull()) return {};
    if (!root->IsMap()) {
      return InvalidArgument("{}: keys with values are needed, such as 'steps: 300'", where);
    }
    const Status status = Collect(*root, where, fields_.all, entries_);
    if (!status) return InvalidArgument("{}: {}", where, status.error().line());
    return {};
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
    for (const Entry& entry : entries_) {
      if (entry.key == "model.name") PENSTOCK_TRY_STATUS(Set(entry));
    }
    fields_ = FieldsOf(config_);
    if (fields_.options == nullptr) return WithPlace(CheckModel(config_.model), places_);
    for (const Entry& entry : entries_) PENSTOCK_TRY_STATUS(Set(entry));
    StoreOptions(fields_, config_);
    return UseTokenizerOfModel();
  }

  const Places& places() const { return places_; }

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

  Status ReadModel(const Entry& entry) {
    const bool has_text = entry.place.empty() || entry.node.IsScalar();
    if (!has_text)
      return InvalidArgument("{}model: a map or the path of a config.json is needed", entry.place);
    const std::string path = entry.place.empty() ? entry.text : entry.node.Scalar();
    auto model = ReadHuggingFaceConfig(path);
    if (!model) return InvalidArgument("{}model: {}", entry.place, model.error().line());
    config_.model = *std::move(model);
    config_.weights = HasHuggingFaceWeights(path) ? path : "";
    model_folder_ = {path, entry.place};
    return {};
  }

  // A model's folder brings its tokenizer. Other weights bring theirs, see FollowWeights.
  Status UseTokenizerOfModel() {
    const auto& [folder, place] = model_folder_;
    const std::string& weights = config_.weights;
    const bool is_of_weights = !weights.empty() && weights != folder && HasTokenizer(weights);
    if (folder.empty() || !config_.data.tokenizer.empty() || is_of_weights) return {};
    auto tokenizer = TokenizerOfFolder(folder);
    if (!tokenizer)
      return InvalidArgument("{}model: {}, or set data.tokenizer", place, tokenizer.error().line());
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
    const std::string others = ModelsWith(key, config_.model.name);
    if (!others.empty()) {
      return InvalidArgument("unknown key {}: it is of {}, not of model {}", Quote(key), others,
                             config_.model.name);
    }
    return InvalidArgument("unknown key {}: {}", Quote(key), KeyHint(key, fields_.all));
  }

  Status Set(const Entry& entry) {
    auto field = Find(entry.key, entry.place.empty(), true);
    const Status status = field ? SetValue(**field, entry) : Status(tl::unexpected(field.error()));
    if (!status) return MakeError(status.error().code, "{}{}", entry.place, status.error().line());
    if (entry.place.empty()) {
      places_.erase((*field)->key);
    } else {
      places_[(*field)->key] = entry.place;
    }
    return {};
  }

  static Status SetValue(const Field& field, const Entry& entry) {
    if (entry.place.empty()) return SetField(field, entry.text);
    const YAML::Node& node = entry.node;
    if (node.IsNull()) {
      if (IsText(field)) return SetField(field, "");
      return InvalidArgument("{}: a value is missing", field.key);
    }
    if (node.IsScalar()) return SetField(field, node.Scalar());
    if (field.key == kGroups && node.IsSequence()) {
      const auto groups = ReadParameterGroups(node);
      if (!groups) return InvalidArgument("{}: {}", kGroups, groups.error().line());
      return SetField(field, FormatParameterGroups(*groups));
    }
    if (node.IsMap() || !IsList(field)) {
      return InvalidArgument("{}: one value is needed, not a {}", field.key,
                             node.IsMap() ? "map" : "list");
    }
    std::vector<std::string_view>
        items;  // copies may take much more memory than the file: [*a, *a]
    for (const YAML::Node& item : node) {
      if (!item.IsScalar()) return InvalidArgument("{}: a list of numbers is needed", field.key);
      items.push_back(item.Scalar());
    }
    return SetItems(field, items);
  }

  TrainConfig& config_;
  ConfigFields fields_;
  std::vector<Entry> entries_;
  Places places_;
  std::pair<std::string, std::string> model_folder_;  // and its place; empty: none
};

Status CheckConfig(const TrainConfig& config) {
  if (config.name.empty() || config.name == "." || config.name == ".." ||
      config.name.find('/') != std::string::npos) {
    return InvalidArgument("name: '{}' is not the name of a folder", config.name);
  }
  if (config.folder.empty()) return InvalidArgument("folder: a folder for the runs is required");
  if (config.optimizer.beta1 >= 1 || config.optimizer.beta2 >= 1) {
    return InvalidArgument("optimizer.beta1 and optimizer.beta2 must be below 1");
  }
  if (config.optimizer.momentum >= 1 || config.optimizer.ema >= 1) {
    return InvalidArgument("optimizer.momentum and optimizer.ema must be below 1");
  }
  if (!config.pipeline.csv.empty() && config.pipeline.schedule != "auto") {
    return InvalidArgument("give either pipeline.schedule '{}' or pipeline.csv '{}'",
                           config.pipeline.schedule, config.pipeline.csv);
  }
  for (const auto& [key, held] :
       {std::pair("recompute.hold", config.recompute.hold),
        std::pair("recompute.hold_for_weight", config.recompute.hold_for_weight)}) {
    if (const auto bytes = ParseSavedBytes(held); !bytes) {
      return InvalidArgument("{}: {}", key, bytes.error().line());
    }
  }
  if (const auto link = LinkOf(config.parallel); !link) return tl::unexpected(link.error());
  if (config.memory_limit != "auto" && config.memory_limit != "none") {
    if (const auto bytes = ParseBytes(config.memory_limit); !bytes || *bytes < 1) {
      return InvalidArgument("memory_limit '{}': auto, none, or bytes with a unit (16GiB)",
                             config.memory_limit);
    }
  }
  return CheckModel(config.model);
}

// Replaces the text of the groups by its canonical form.
Status ReadGroups(OptimizerConfig& config) {
  const auto groups = ParseParameterGroups(config.groups);
  if (!groups) return InvalidArgument("{}: {}", kGroups, groups.error().line());
  config.groups = FormatParameterGroups(*groups);
  return {};
}

}  // namespace

Result<TrainConfig> ParseTrainConfig(std::string_view text, std::string_view where,
                                     const std::vector<std::string>& overrides) {
  TrainConfig config;
  ConfigReader reader(config);
  PENSTOCK_TRY_STATUS(reader.Read(text, where));
  for (const std::string& each : overrides) PENSTOCK_TRY_STATUS(reader.Override(each));
  PENSTOCK_TRY_STATUS(reader.Apply());
  config.model.seed = config.seed;
  // Experts are divided among replicas, so there are at least as many.
  config.parallel.data = std::max(config.parallel.data, config.parallel.expert);
  PENSTOCK_TRY_STATUS(WithPlace(ReadGroups(config.optimizer), reader.places()));
  PENSTOCK_TRY_STATUS(WithPlace(CheckConfig(config), reader.places()));
  return config;
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
  if (!speed) return InvalidArgument("parallel.link: {}", speed.error().line());
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
