#include "cli/yaml_map.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace penstock {
namespace {

Result<double> ToNumber(const YAML::Node& node, const std::string& key) {
  double value = 0;
  if (!node.IsScalar() || !YAML::convert<double>::decode(node, value) || !std::isfinite(value)) {
    return InvalidArgument("{}: a number is needed", key);
  }
  return value;
}

Result<std::string> ToText(const YAML::Node& node, const std::string& key) {
  if (!node.IsScalar()) return InvalidArgument("{}: one word is needed", key);
  return node.Scalar();
}

// A list of what `read` reads, or one of it.
template <class T, class Read>
Result<std::optional<std::vector<T>>> ReadList(const YAML::Node& node, const std::string& key,
                                               Read read) {
  if (node.IsNull()) return std::optional<std::vector<T>>();
  std::vector<T> values;
  if (!node.IsSequence()) {
    PENSTOCK_TRY(T value, read(node, key));
    values.push_back(std::move(value));
  } else {
    for (const YAML::Node& entry : node) {
      PENSTOCK_TRY(T value, read(entry, key));
      values.push_back(std::move(value));
    }
  }
  return std::optional(std::move(values));
}

}  // namespace

Result<YAML::Node> ParseYaml(const std::string& text) {
  try {
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    return InvalidArgument("line {}: {}", error.mark.line + 1, error.msg);
  }
}

Result<YamlMap> YamlMap::Of(const YAML::Node& node, const std::string& what) {
  if (!node.IsMap()) return InvalidArgument("{} is not a map of keys and values", what);
  for (const auto& entry : node) {
    if (!entry.first.IsScalar()) return InvalidArgument("{} has a key that is not a word", what);
  }
  return YamlMap(node, what);
}

bool YamlMap::Has(const std::string& key) const { return !Node(key).IsNull(); }

YAML::Node YamlMap::Node(const std::string& key) const {
  const YAML::Node found = std::as_const(node_)[key];
  return found.IsDefined() ? found : YAML::Node();
}

Status YamlMap::RequireKnown(const std::vector<std::string_view>& known) const {
  for (const auto& entry : node_) {
    const std::string& key = entry.first.Scalar();
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return InvalidArgument("{} has an unknown key '{}'; there are {}", what_, key,
                             fmt::join(known, ", "));
    }
  }
  return {};
}

Result<std::optional<double>> YamlMap::Number(const std::string& key) const {
  const YAML::Node node = Node(key);
  if (node.IsNull()) return std::optional<double>();
  PENSTOCK_TRY(const double value, ToNumber(node, key));
  return std::optional(value);
}

Result<std::optional<int>> YamlMap::Int(const std::string& key) const {
  const YAML::Node node = Node(key);
  if (node.IsNull()) return std::optional<int>();
  const std::string text = node.IsScalar() ? node.Scalar() : "";
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return InvalidArgument("{}: a whole number is needed", key);
  }
  return std::optional(value);
}

Result<std::optional<bool>> YamlMap::Bool(const std::string& key) const {
  const YAML::Node node = Node(key);
  if (node.IsNull()) return std::optional<bool>();
  bool value = false;
  if (!node.IsScalar() || !YAML::convert<bool>::decode(node, value)) {
    return InvalidArgument("{}: true or false is needed", key);
  }
  return std::optional(value);
}

Result<std::optional<std::string>> YamlMap::Text(const std::string& key) const {
  const YAML::Node node = Node(key);
  if (node.IsNull()) return std::optional<std::string>();
  PENSTOCK_TRY(std::string value, ToText(node, key));
  return std::optional(std::move(value));
}

Result<std::optional<std::vector<double>>> YamlMap::Numbers(const std::string& key) const {
  return ReadList<double>(Node(key), key, ToNumber);
}

Result<std::optional<std::vector<std::string>>> YamlMap::Texts(const std::string& key) const {
  return ReadList<std::string>(Node(key), key, ToText);
}

}  // namespace penstock
