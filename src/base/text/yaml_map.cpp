#include "base/text/yaml_map.h"

#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "base/text/deprecated_names.h"
#include "base/text/nearest.h"
#include "base/text/numbers.h"
#include "base/text/quote.h"

namespace penstock {
namespace {

Result<std::string> ToText(const YAML::Node& node) {
  if (!node.IsScalar()) return InvalidArgument("must be one word");
  if (node.Scalar().empty()) return InvalidArgument("the value is empty");
  return node.Scalar();
}

Result<double> ToNumber(const YAML::Node& node) {
  if (!node.IsScalar()) return InvalidArgument("must be a number");
  return ParseNumber(node.Scalar());
}

Result<int> ToInt(const YAML::Node& node) {
  if (!node.IsScalar()) return InvalidArgument("must be a whole number");
  return ParseInt(node.Scalar());
}

Result<bool> ToBool(const YAML::Node& node) {
  bool value = false;
  if (!node.IsScalar() || !YAML::convert<bool>::decode(node, value)) {
    return InvalidArgument("must be true or false");
  }
  return value;
}

// Reads a list, or one value as a list of one.
template <class T, class Read>
Result<std::vector<T>> ToList(const YAML::Node& node, Read read) {
  std::vector<T> values;
  if (!node.IsSequence()) {
    PENSTOCK_TRY(T value, read(node));
    values.push_back(std::move(value));
    return values;
  }
  for (const YAML::Node& entry : node) {
    PENSTOCK_TRY(T value, read(entry));
    values.push_back(std::move(value));
  }
  if (values.empty()) return InvalidArgument("the list is empty");
  return values;
}

// The current name of an entry's key.
std::string KeyOf(const YAML::const_iterator::value_type& entry) {
  return std::string(CurrentName(entry.first.Scalar()));
}

template <class... Args>
tl::unexpected<Error> RefuseAt(int line, fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected(
      In(fmt::format("line {}", line),
         {ErrorCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...)}));
}

// The tags of plain YAML. Others name types of a program, which nobody here makes.
bool IsPlainTag(const std::string& tag) {
  static const std::set<std::string> kTags = {
      "",
      "?",
      "!",
      "tag:yaml.org,2002:str",
      "tag:yaml.org,2002:int",
      "tag:yaml.org,2002:float",
      "tag:yaml.org,2002:bool",
      "tag:yaml.org,2002:null",
      "tag:yaml.org,2002:map",
      "tag:yaml.org,2002:seq",
  };
  return kTags.contains(tag);
}

// Notes where the last document starts, and the first value whose tag is not plain YAML's.
class DocumentStart final : public YAML::EventHandler {
 public:
  const YAML::Mark& mark() const { return mark_; }
  // Returns where the value is, and its tag.
  const std::optional<std::pair<int, std::string>>& foreign() const { return foreign_; }

  void OnDocumentStart(const YAML::Mark& mark) override { mark_ = mark; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                const std::string&) override {
    Note(mark, tag);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    Note(mark, tag);
  }
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    Note(mark, tag);
  }
  void OnMapEnd() override {}

 private:
  void Note(const YAML::Mark& mark, const std::string& tag) {
    if (!foreign_ && !IsPlainTag(tag)) foreign_.emplace(mark.line + 1, tag);
  }

  YAML::Mark mark_;
  std::optional<std::pair<int, std::string>> foreign_;
};

// Does not use YAML::LoadAll: after a token that starts no value (", a"), yaml-cpp 0.7 finds empty
// documents at the same place, until the memory is exhausted.
Status CheckDocuments(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentStart start;
  if (!parser.HandleNextDocument(start)) return {};
  if (start.foreign()) {
    return RefuseAt(start.foreign()->first, "a value has the tag {}; write a plain value",
                    Quote(start.foreign()->second));
  }
  const YAML::Mark first = start.mark();
  if (!parser.HandleNextDocument(start)) return {};
  if (start.mark().pos == first.pos) {
    return RefuseAt(first.line + 1, "a value cannot start here");
  }
  return RefuseAt(start.mark().line + 1, "a second YAML document starts here; keep one of them");
}

// Returns the value of a key as `read` parses it.
template <class T, class Read>
Result<std::optional<T>> Get(const YamlMap& map, const std::string& key, Read read) {
  const YAML::Node node = map.Node(key);
  if (node.IsNull()) return std::optional<T>();
  auto value = read(node);
  if (!value) return map.Refuse(key, "{}", value.error().line());
  return std::optional<T>(std::move(*value));
}

}  // namespace

Result<YAML::Node> ParseYaml(const std::string& text) {
  try {
    PENSTOCK_TRY_STATUS(CheckDocuments(text));
    return YAML::Load(text);
  } catch (const YAML::DeepRecursion& error) {
    return RefuseAt(error.mark.line + 1, "it is nested too deeply");
  } catch (const YAML::Exception& error) {
    return RefuseAt(error.mark.line + 1, "{}", Printable(error.msg));
  }
}

Result<YAML::Node> LoadYaml(const std::string& path) {
  PENSTOCK_TRY(const std::string text, ReadTextFile(path, kYamlFile));
  auto root = ParseYaml(text);
  if (!root) return tl::unexpected(In(path, root.error()));
  return root;
}

Result<YamlMap> YamlMap::Of(const YAML::Node& node, const std::string& what, Null null) {
  if (!node.IsMap()) {
    if (node.Mark().is_null()) return InvalidArgument("{} is not a map of keys and values", what);
    return RefuseAt(node.Mark().line + 1, "{} is not a map of keys and values", what);
  }
  std::set<std::string> keys;
  for (const auto& entry : node) {
    const int line = entry.first.Mark().line + 1;
    if (!entry.first.IsScalar()) {
      return RefuseAt(line, "{} has a key that is not a word", what);
    }
    const std::string key = KeyOf(entry);
    if (!keys.insert(key).second) {
      return RefuseAt(line, "{} is given twice; give it once", Quote(key));
    }
    if (null == Null::kRefused && entry.second.IsNull()) {
      return RefuseAt(line, "{} has no value; give one or leave the key out", Quote(key));
    }
  }
  return YamlMap(node, what);
}

bool YamlMap::Has(const std::string& key) const { return !Node(key).IsNull(); }

YAML::Node YamlMap::Node(const std::string& key) const {
  for (const auto& entry : node_) {
    if (KeyOf(entry) == key) return entry.second;
  }
  return {};
}

std::vector<std::string> YamlMap::Keys() const {
  std::vector<std::string> keys;
  for (const auto& entry : node_) keys.push_back(KeyOf(entry));
  return keys;
}

int YamlMap::LineOf(const std::string& key) const {
  for (const auto& entry : node_) {
    if (KeyOf(entry) == key) return entry.first.Mark().line + 1;
  }
  return Line();
}

Status YamlMap::RequireKnown(const std::vector<std::string_view>& known) const {
  for (const auto& entry : node_) {
    const std::string key = KeyOf(entry);
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    return RefuseAt(entry.first.Mark().line + 1, "{} has an unknown key {}; {}", what_, Quote(key),
                    DidYouMean(key, known, fmt::format("the keys are {}", fmt::join(known, ", "))));
  }
  return {};
}

Result<std::optional<double>> YamlMap::Number(const std::string& key) const {
  return Get<double>(*this, key, ToNumber);
}

Result<std::optional<int>> YamlMap::Int(const std::string& key) const {
  return Get<int>(*this, key, ToInt);
}

Result<std::optional<bool>> YamlMap::Bool(const std::string& key) const {
  return Get<bool>(*this, key, ToBool);
}

Result<std::optional<std::string>> YamlMap::Text(const std::string& key) const {
  return Get<std::string>(*this, key, ToText);
}

Result<std::optional<std::vector<double>>> YamlMap::Numbers(const std::string& key) const {
  using List = std::vector<double>;
  return Get<List>(*this, key,
                   [](const YAML::Node& node) { return ToList<double>(node, ToNumber); });
}

Result<std::optional<std::vector<std::string>>> YamlMap::Texts(const std::string& key) const {
  using List = std::vector<std::string>;
  return Get<List>(*this, key,
                   [](const YAML::Node& node) { return ToList<std::string>(node, ToText); });
}

}  // namespace penstock
