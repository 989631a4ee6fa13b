// YamlMap reads a YAML map key by key.
//
// Errors: kInvalidArgument if a value does not have the requested form. Every error names the line
// and the key ("line 3: comm: 'x' is not a number"). A getter returns an empty optional if the key
// is missing.
#pragma once

#include <yaml-cpp/yaml.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"

namespace penstock {

// Configurations are written by hand. The parser needs a second for a few megabytes.
inline constexpr FileLimit kYamlFile = {std::size_t{1} << 20, "YAML file"};

// Parses one document. Refuses further ones, which nobody would read.
Result<YAML::Node> ParseYaml(const std::string& text);
// Reads a file of at most kYamlFile.bytes. Errors about its content begin with its path.
Result<YAML::Node> LoadYaml(const std::string& path);

class YamlMap {
 public:
  enum class Null {
    kRefused,
    kMissing,  // read as if the key were missing
  };

  // `what` names the map in errors: "the configuration". Refuses a key that is given twice, and a
  // key without a value unless `null` allows it.
  static Result<YamlMap> Of(const YAML::Node& node, const std::string& what,
                            Null null = Null::kRefused);

  bool Has(const std::string& key) const;
  // Refuses every key that is not in `known`, and suggests the nearest one that is.
  Status RequireKnown(const std::vector<std::string_view>& known) const;

  Result<std::optional<double>> Number(const std::string& key) const;  // finite
  Result<std::optional<int>> Int(const std::string& key) const;
  Result<std::optional<bool>> Bool(const std::string& key) const;
  Result<std::optional<std::string>> Text(const std::string& key) const;  // not empty
  // A single value counts as a list of one. An empty list is refused.
  Result<std::optional<std::vector<double>>> Numbers(const std::string& key) const;
  Result<std::optional<std::vector<std::string>>> Texts(const std::string& key) const;
  // Returns a null node if the key is missing.
  YAML::Node Node(const std::string& key) const;

  // Returns an error at the line and the key, which are as the user wrote them.
  template <class... Args>
  tl::unexpected<Error> Refuse(const std::string& key, fmt::format_string<Args...> format,
                               Args&&... args) const {
    return tl::unexpected<Error>(
        Error{.code = ErrorCode::kInvalidArgument,
              .message = ": " + fmt::format(format, std::forward<Args>(args)...),
              .parameter = key,
              .where = fmt::format("line {}", LineOf(key))});
  }
  // Returns the line of the key, or the line of the map if the key is missing.
  int LineOf(const std::string& key) const;
  // Returns the line on which the map begins.
  int Line() const { return node_.Mark().line + 1; }
  std::vector<std::string> Keys() const;

 private:
  YamlMap(const YAML::Node& node, std::string what) : node_(node), what_(std::move(what)) {}

  YAML::Node node_;
  std::string what_;
};

}  // namespace penstock
