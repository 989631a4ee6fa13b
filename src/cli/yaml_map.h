// YamlMap: a YAML map read key by key, with errors that name the key.
//
// Errors: kInvalidArgument where a value has another form than the one asked for. A getter gives an
// empty optional where the key is not there (or null).
#pragma once

#include <yaml-cpp/yaml.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace penstock {

// Parses a whole file; errors name its line.
Result<YAML::Node> ParseYaml(const std::string& text);

class YamlMap {
 public:
  // `what` is what the map is, for errors: "the configuration".
  static Result<YamlMap> Of(const YAML::Node& node, const std::string& what);

  bool Has(const std::string& key) const;
  // Refuses every key that is not listed, naming those there are.
  Status RequireKnown(const std::vector<std::string_view>& known) const;

  Result<std::optional<double>> Number(const std::string& key) const;  // finite
  Result<std::optional<int>> Int(const std::string& key) const;
  Result<std::optional<bool>> Bool(const std::string& key) const;
  Result<std::optional<std::string>> Text(const std::string& key) const;
  // One value stands for a list of one.
  Result<std::optional<std::vector<double>>> Numbers(const std::string& key) const;
  Result<std::optional<std::vector<std::string>>> Texts(const std::string& key) const;
  // Null where the key is not there.
  YAML::Node Node(const std::string& key) const;

 private:
  YamlMap(const YAML::Node& node, std::string what) : node_(node), what_(std::move(what)) {}

  YAML::Node node_;
  std::string what_;
};

}  // namespace penstock
