// YamlMap: a YAML map read key by key.
//
// Errors: kInvalidArgument where a value has another form than the one asked for; every error
// names the line and the key ("line 3: comm: 'x' is not a number"). A getter returns an empty
// optional where the key is missing.
#pragma once

#include <yaml-cpp/yaml.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"

namespace penstock {

// A configuration is written by hand. The parser needs a second for a few megabytes.
inline constexpr FileLimit kYamlFile = {std::size_t{1} << 20, "YAML file"};

// Parses one document. Refuses a second one, which nobody would read.
Result<YAML::Node> ParseYaml(const std::string& text);
// Reads a file of at most kYamlFile. Errors of its content begin with its path.
Result<YAML::Node> LoadYaml(const std::string& path);

class YamlMap {
 public:
  enum class Null {
    kRefused,
    kMissing,  // as if the key were not there
  };

  // `what` is what the map is, for errors: "the configuration". Refuses a key that is given twice,
  // and keys without a value unless `null` lets them pass.
  static Result<YamlMap> Of(const YAML::Node& node, const std::string& what,
                            Null null = Null::kRefused);

  bool Has(const std::string& key) const;
  // Refuses every key that is not listed and suggests the one that was meant.
  Status RequireKnown(const std::vector<std::string_view>& known) const;

  Result<std::optional<double>> Number(const std::string& key) const;  // finite
  Result<std::optional<int>> Int(const std::string& key) const;
  Result<std::optional<bool>> Bool(const std::string& key) const;
  Result<std::optional<std::string>> Text(const std::string& key) const;  // not empty
  // One value stands for a list of one; refuses an empty list.
  Result<std::optional<std::vector<double>>> Numbers(const std::string& key) const;
  Result<std::optional<std::vector<std::string>>> Texts(const std::string& key) const;
  // Null where the key is missing.
  YAML::Node Node(const std::string& key) const;

  // An error at `key`.
  template <class... Args>
  tl::unexpected<Error> Refuse(const std::string& key, fmt::format_string<Args...> format,
                               Args&&... args) const {
    return InvalidArgument("line {}: {}: {}", LineOf(key), key,
                           fmt::format(format, std::forward<Args>(args)...));
  }
  // The line of the key; of the map where the key is missing.
  int LineOf(const std::string& key) const;
  // The line on which the map begins.
  int Line() const { return node_.Mark().line + 1; }
  std::vector<std::string> Keys() const;

 private:
  YamlMap(const YAML::Node& node, std::string what) : node_(node), what_(std::move(what)) {}

  YAML::Node node_;
  std::string what_;
};

}  // namespace penstock
