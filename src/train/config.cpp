#include "train/config.h"

#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <variant>

#include "base/files.h"
#include "base/former_names.h"
#include "base/units.h"
#include "graph/compile.h"
#include "train/key_hint.h"

namespace penstock {
namespace {

using FieldValue = std::variant<std::string*, bool*, int*, std::int64_t*, std::uint64_t*, double*,
                                std::vector<std::int64_t>*>;

struct Field {
  std::string_view key;
  FieldValue value;
  double least = 0;        // numbers only
  bool automatic = false;  // "auto" is 0
  double most = std::numeric_limits<double>::max();
};

// Updates are made in fp32: a smaller epsilon is 0 there, and an update without a gradient 0 / 0.
constexpr double kLeastEpsilon = 1e-37;
// So that a few of them fit into 64 bits together; larger than any model.
constexpr double kMostModelSize = 1e9;
// 30 years: it is counted in milliseconds.
constexpr double kLongestWatchdog = 1e9;

// Every key there is, in the order they are printed. Keys of one section stand together.
std::vector<Field> Fields(TrainConfig& c) {
  constexpr double kAny = std::numeric_limits<double>::lowest();
  return {
      {"name", &c.name},
      {"folder", &c.folder},
      {"seed", &c.seed},
      {"batch", &c.batch, 1},
      {"steps", &c.steps, 1},
      {"seconds", &c.seconds, 0},
      {"sample", &c.sample, 0},
      {"exact", &c.exact},
      {"fuse", &c.fuse},
      {"precision", &c.precision},
      {"memory_limit", &c.memory_limit},
      {"watchdog", &c.watchdog, 0.1, false, kLongestWatchdog},
      {"compiled", &c.compiled},
      {"resume", &c.resume},
      {"trace_steps", &c.trace_steps, 0},
      {"data.path", &c.data.path},
      {"data.held_out", &c.data.held_out, 0.001, false, 0.5},
      {"model.name", &c.model.name},
      {"model.vocabulary", &c.model.vocabulary, 256, false, kMostModelSize},
      {"model.dim", &c.model.dim, 1, false, kMostModelSize},
      {"model.layers", &c.model.layers, 1, false, kMostModelSize},
      {"model.heads", &c.model.heads, 1, false, kMostModelSize},
      {"model.kv_heads", &c.model.kv_heads, 0, true, kMostModelSize},
      {"model.hidden", &c.model.hidden, 0, true, kMostModelSize},
      {"model.sequence", &c.model.sequence, 1, false, kMostModelSize},
      {"model.rope_theta", &c.model.rope_theta, 1},
      {"model.norm_epsilon", &c.model.norm_epsilon, 0},
      {"model.dropout", &c.model.dropout, 0, false, 0.99},
      {"pipeline.stages", &c.pipeline.stages, 1},
      {"pipeline.ranks", &c.pipeline.ranks, 0, true},
      {"pipeline.chunks", &c.pipeline.chunks, 0, true},
      {"pipeline.schedule", &c.pipeline.schedule},
      {"pipeline.csv", &c.pipeline.csv},
      {"pipeline.microbatches", &c.pipeline.microbatches, 1},
      {"pipeline.slices", &c.pipeline.slices, 1},
      {"pipeline.slice_lengths", &c.pipeline.slice_lengths, 1},
      {"pipeline.split", &c.pipeline.split},
      {"pipeline.stage_layers", &c.pipeline.stage_layers, kAny},
      {"recompute.hold", &c.recompute.hold},
      {"recompute.hold_for_weight", &c.recompute.hold_for_weight},
      {"offload.pool", &c.offload.pool},
      {"checkpoint.every", &c.checkpoint.every, 0},
      {"checkpoint.keep", &c.checkpoint.keep, 0},
      {"optimizer.lr", &c.optimizer.lr, 0},
      {"optimizer.lr_end", &c.optimizer.lr_end, 0, false, 1},
      {"optimizer.warmup", &c.optimizer.warmup, 0},
      {"optimizer.beta1", &c.optimizer.beta1, 0, false, 1},
      {"optimizer.beta2", &c.optimizer.beta2, 0, false, 1},
      {"optimizer.epsilon", &c.optimizer.epsilon, kLeastEpsilon},
      {"optimizer.weight_decay", &c.optimizer.weight_decay, 0},
      {"optimizer.clip", &c.optimizer.clip, 0},
      {"optimizer.nonfinite", &c.optimizer.nonfinite},
      {"optimizer.post_validation", &c.optimizer.post_validation},
  };
}

std::string_view LastWord(std::string_view key) { return key.substr(key.rfind('.') + 1); }

std::vector<std::string_view> KeysOf(const std::vector<Field>& fields) {
  std::vector<std::string_view> keys;
  for (const Field& field : fields) keys.push_back(field.key);
  return keys;
}

// By the whole key; `shorten` also takes the last word where only one key has it.
Result<const Field*> FindField(const std::vector<Field>& fields, std::string_view key,
                               bool shorten) {
  const std::size_t last = key.size() - LastWord(key).size();
  const std::string current =
      fmt::format("{}{}", key.substr(0, last), CurrentName(key.substr(last)));
  key = current;
  const Field* found = nullptr;
  for (const Field& field : fields) {
    if (field.key == key) return &field;
    if (!shorten || LastWord(field.key) != key) continue;
    if (found != nullptr) {
      return InvalidArgument("'{}' is both '{}' and '{}': give the whole key", key, found->key,
                             field.key);
    }
    found = &field;
  }
  if (found != nullptr) return found;
  return InvalidArgument("unknown key '{}': {}", key, KeyHint(key, KeysOf(fields)));
}

template <class T>
std::optional<T> ParseAs(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

template <class T>
Status SetNumber(const Field& field, T* target, std::string_view text) {
  if (field.automatic && text == "auto") {
    *target = 0;
    return {};
  }
  const std::optional<T> value = ParseAs<T>(text);
  if (!value || !std::isfinite(static_cast<double>(*value))) {
    return InvalidArgument("{}: '{}' is not a {}number{}", field.key, text,
                           std::is_integral_v<T> ? "whole " : "",
                           field.automatic ? " or 'auto'" : "");
  }
  const auto number = static_cast<double>(*value);
  if (number < field.least || number > field.most) {
    return InvalidArgument("{}: {} is out of range: {} {}", field.key, text,
                           number < field.least ? "at least" : "at most",
                           number < field.least ? field.least : field.most);
  }
  *target = *value;
  return {};
}

Status SetList(const Field& field, std::vector<std::int64_t>* target, std::string_view text) {
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  std::vector<std::int64_t> numbers;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(','), text.size());
    std::string_view item = text.substr(0, end);
    while (item.starts_with(' ')) item.remove_prefix(1);
    std::int64_t number = 0;
    PENSTOCK_TRY_STATUS(SetNumber(field, &number, item));
    numbers.push_back(number);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  *target = std::move(numbers);
  return {};
}

Status SetField(const Field& field, const std::string& text) {
  return std::visit(
      [&](auto* target) -> Status {
        using T = std::remove_pointer_t<decltype(target)>;
        if constexpr (std::is_same_v<T, std::string>) {
          *target = text;
          return {};
        } else if constexpr (std::is_same_v<T, bool>) {
          if (text != "true" && text != "false") {
            return InvalidArgument("{}: '{}' is neither true nor false", field.key, text);
          }
          *target = text == "true";
          return {};
        } else if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) {
          return SetList(field, target, text);
        } else {
          return SetNumber(field, target, text);
        }
      },
      field.value);
}

Status ReadNode(const YAML::Node& node, const std::string& key, const std::vector<Field>& fields) {
  if (node.IsMap()) {
    for (const auto& entry : node) {
      const auto name = entry.first.as<std::string>();
      PENSTOCK_TRY_STATUS(
          ReadNode(entry.second, key.empty() ? name : fmt::format("{}.{}", key, name), fields));
    }
    return {};
  }
  if (node.IsNull() && std::any_of(fields.begin(), fields.end(), [&](const Field& field) {
        return field.key.starts_with(key + ".");
      })) {
    return {};  // a section with nothing in it
  }
  PENSTOCK_TRY(const Field* field, FindField(fields, key, false));
  if (node.IsNull()) {
    if (std::holds_alternative<std::string*>(field->value)) return SetField(*field, "");
    return InvalidArgument("{}: a value is missing", key);
  }
  if (node.IsSequence()) {
    if (!std::holds_alternative<std::vector<std::int64_t>*>(field->value)) {
      return InvalidArgument("{}: one value is needed, not a list", key);
    }
    std::vector<std::string> items;
    for (const auto& item : node) items.push_back(item.as<std::string>());
    return SetField(*field, fmt::format("{}", fmt::join(items, ",")));
  }
  return SetField(*field, node.as<std::string>());
}

Status CheckConfig(const TrainConfig& config) {
  if (config.name.empty() || config.name == "." || config.name == ".." ||
      config.name.find('/') != std::string::npos) {
    return InvalidArgument("name: '{}' is not a folder's name", config.name);
  }
  if (config.folder.empty()) return InvalidArgument("folder: a folder for the runs is needed");
  if (config.optimizer.beta1 >= 1 || config.optimizer.beta2 >= 1) {
    return InvalidArgument("optimizer.beta1 and optimizer.beta2 are below 1");
  }
  if (!config.pipeline.csv.empty() && config.pipeline.schedule != "auto") {
    return InvalidArgument("give either pipeline.schedule '{}' or pipeline.csv '{}'",
                           config.pipeline.schedule, config.pipeline.csv);
  }
  if (config.precision != "f32" && config.precision != "bf16") {
    return InvalidArgument("precision '{}': f32 or bf16", config.precision);
  }
  if (config.optimizer.nonfinite != "fail" && config.optimizer.nonfinite != "skip") {
    return InvalidArgument("optimizer.nonfinite '{}': fail or skip", config.optimizer.nonfinite);
  }
  for (const std::string& held : {config.recompute.hold, config.recompute.hold_for_weight}) {
    if (const auto bytes = HeldBytes(held); !bytes) {
      return InvalidArgument("recompute: {}", bytes.error().message);
    }
  }
  if (config.memory_limit != "auto" && config.memory_limit != "none") {
    if (const auto bytes = ParseBytes(config.memory_limit); !bytes || *bytes < 1) {
      return InvalidArgument("memory_limit '{}': auto, none, or bytes with a unit (16GiB)",
                             config.memory_limit);
    }
  }
  return CheckModel(config.model);
}

Status ApplyOverride(const std::string& text, const std::vector<Field>& fields) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return InvalidArgument("'{}' is neither an option nor key=value", text);
  }
  PENSTOCK_TRY(const Field* field, FindField(fields, text.substr(0, equals), true));
  return SetField(*field, text.substr(equals + 1));
}

// As YAML reads back to the same string.
std::string Quoted(const std::string& text) {
  YAML::Emitter out;
  out << YAML::DoubleQuoted << text;
  return out.c_str();
}

std::string ValueText(const Field& field) {
  return std::visit(
      [&](const auto* value) -> std::string {
        using T = std::remove_cv_t<std::remove_pointer_t<decltype(value)>>;
        if constexpr (std::is_same_v<T, std::string>) {
          return Quoted(*value);
        } else if constexpr (std::is_same_v<T, bool>) {
          return *value ? "true" : "false";
        } else if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) {
          return fmt::format("[{}]", fmt::join(*value, ", "));
        } else {
          return field.automatic && *value == 0 ? "auto" : fmt::format("{}", *value);
        }
      },
      field.value);
}

}  // namespace

Result<TrainConfig> ParseTrainConfig(std::string_view text, std::string_view where,
                                     const std::vector<std::string>& overrides) {
  TrainConfig config;
  const std::vector<Field> fields = Fields(config);
  try {
    const YAML::Node root = YAML::Load(std::string(text));
    if (!root.IsMap() && !root.IsNull()) {
      return InvalidArgument("{}: keys with values are needed, such as 'steps: 300'", where);
    }
    if (root.IsMap()) {
      if (const Status status = ReadNode(root, "", fields); !status) {
        return InvalidArgument("{}: {}", where, status.error().message);
      }
    }
  } catch (const YAML::Exception& error) {
    return InvalidArgument("{}: line {}, column {}: {}", where, error.mark.line + 1,
                           error.mark.column + 1, error.msg);
  }
  for (const std::string& text_override : overrides) {
    PENSTOCK_TRY_STATUS(ApplyOverride(text_override, fields));
  }
  config.model.seed = config.seed;
  PENSTOCK_TRY_STATUS(CheckConfig(config));
  return config;
}

Result<TrainConfig> LoadTrainConfig(const std::string& path,
                                    const std::vector<std::string>& overrides) {
  PENSTOCK_TRY(const std::string text, ReadFile(path));
  return ParseTrainConfig(text, path, overrides);
}

UpdateRule UpdateRuleOf(const OptimizerConfig& config) {
  UpdateRule rule;
  rule.clip = config.clip;
  rule.skip_nonfinite = config.nonfinite == "skip";
  rule.post_validation = config.post_validation;
  return rule;
}

Result<std::int64_t> HeldBytes(std::string_view text) {
  if (text == "all") return kHoldAll;
  if (text == "least") return 0;
  const auto bytes = ParseBytes(text);
  if (!bytes || *bytes < 1) {
    return InvalidArgument("'{}' is none of: all, least, or bytes with a unit (1.5MiB)", text);
  }
  return *bytes;
}

std::string ConfigValue(const TrainConfig& config, std::string_view key) {
  TrainConfig copy = config;
  for (const Field& field : Fields(copy)) {
    if (field.key == key) return ValueText(field);
  }
  PENSTOCK_CHECK(false, "there is no key '{}'", key);
  return {};
}

std::vector<std::string> DifferentKeys(const TrainConfig& one, const TrainConfig& other) {
  TrainConfig a = one;
  TrainConfig b = other;
  const std::vector<Field> fields = Fields(a);
  const std::vector<Field> others = Fields(b);
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (ValueText(fields[i]) != ValueText(others[i])) keys.emplace_back(fields[i].key);
  }
  return keys;
}

std::string ToYaml(const TrainConfig& config) {
  TrainConfig copy = config;
  std::string text;
  std::string_view open_section;
  for (const Field& field : Fields(copy)) {
    const std::size_t dot = field.key.find('.');
    const std::string_view section =
        dot == std::string_view::npos ? std::string_view() : field.key.substr(0, dot);
    if (section != open_section) text += fmt::format("{}:\n", section);
    open_section = section;
    text += fmt::format("{}{}: {}\n", section.empty() ? "" : "  ", LastWord(field.key),
                        ValueText(field));
  }
  return text;
}

}  // namespace penstock
