#include "scenario/sweep_axes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <unordered_set>

#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "base/text/split.h"
#include "scenario/own_fields.h"

namespace penstock {
namespace {

constexpr std::size_t kMostValues = 1'000'000;  // of one key

bool HasCommas(const SweepAxis& axis) {
  return axis.key != kScheduleAxis && MayContainCommas(*FindField(axis.key));
}

// "16..128" doubles, "16..128+16" adds 16.
Result<std::vector<std::string>> ExpandRange(const std::string& text, std::size_t dots) {
  const std::size_t plus = std::min(text.find('+', dots), text.size());
  const auto first = ParseInt(text.substr(0, dots));
  const auto last = ParseInt(text.substr(dots + 2, plus - dots - 2));
  const Result<int> step = plus < text.size() ? ParseInt(text.substr(plus + 1)) : Result<int>(1);
  if (!first || !last || !step) {
    return InvalidArgument(
        "{} is not a range: write FIRST..LAST (each value twice the previous) or "
        "FIRST..LAST+STEP, in integers",
        Quote(text));
  }
  if (*first < 1 || *step < 1 || *first > *last) {
    return InvalidArgument("{}: a range is ascending, and its first value and step are at least 1",
                           Quote(text));
  }
  std::vector<std::string> values;
  const bool doubles = plus == text.size();
  for (std::int64_t value = *first; value <= *last; value = doubles ? 2 * value : value + *step) {
    if (values.size() == kMostValues) {
      return InvalidArgument("{} has more than {} values", Quote(text), kMostValues);
    }
    values.push_back(fmt::format("{}", value));
  }
  return values;
}

// Appends the values that one text between commas stands for.
Status AddValues(const std::string& text, SweepAxis& axis) {
  const bool may_be_range = axis.key != kScheduleAxis && !HasCommas(axis);
  const std::size_t dots = text.find("..");
  if (text.empty()) return InvalidArgument("a value is empty");
  if (!may_be_range || dots == std::string::npos) {
    axis.values.push_back(text);
    return {};
  }
  PENSTOCK_TRY(const std::vector<std::string> values, ExpandRange(text, dots));
  axis.values.insert(axis.values.end(), values.begin(), values.end());
  return {};
}

Status AddList(std::string_view text, SweepAxis& axis) {
  for (const std::string& part : SplitAt(text, ',')) PENSTOCK_TRY_STATUS(AddValues(part, axis));
  return {};
}

Status RequireDifferent(const SweepAxis& axis) {
  std::unordered_set<std::string_view> seen;
  for (const std::string& value : axis.values) {
    if (!seen.insert(value).second) return InvalidArgument("{} is given twice", Quote(value));
  }
  return {};
}

Result<std::string> FindAxis(std::string_view word) {
  constexpr std::array kMore = {kScheduleAxis};
  return FindOwnField(word, kMore);
}

SweepAxis* Find(std::vector<SweepAxis>& axes, const std::string& key) {
  const auto found = std::find_if(axes.begin(), axes.end(),
                                  [&](const SweepAxis& axis) { return axis.key == key; });
  return found == axes.end() ? nullptr : &*found;
}

Status ParseWord(const std::string& word, std::vector<SweepAxis>& axes) {
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos) {
    return InvalidArgument("write KEY=VALUES; names and files go before `sweep`");
  }
  PENSTOCK_TRY(const std::string key, FindAxis(std::string_view(word).substr(0, equals)));
  const std::string values = word.substr(equals + 1);
  SweepAxis* axis = Find(axes, key);
  if (axis != nullptr && !HasCommas(*axis)) {
    return InvalidArgument("{} is given twice; write all its values after one =", key);
  }
  if (axis == nullptr) axis = &axes.emplace_back(SweepAxis{key, {}});
  PENSTOCK_TRY_STATUS(HasCommas(*axis) ? AddValues(values, *axis) : AddList(values, *axis));
  return RequireDifferent(*axis);
}

// A value, or a list of them. An entry of a list may be a list: the parts of one cost.
Status ReadValues(const YAML::Node& node, SweepAxis& axis) {
  if (node.IsScalar()) {
    return HasCommas(axis) ? AddValues(node.Scalar(), axis) : AddList(node.Scalar(), axis);
  }
  if (!node.IsSequence()) return InvalidArgument("a value or a list of values is needed");
  for (const YAML::Node& entry : node) {
    std::vector<std::string> parts;
    if (entry.IsScalar()) parts.push_back(entry.Scalar());
    for (const YAML::Node& part : entry) {
      if (!part.IsScalar()) return InvalidArgument("a list of values is needed");
      parts.push_back(part.Scalar());
    }
    PENSTOCK_TRY_STATUS(AddValues(fmt::format("{}", fmt::join(parts, ",")), axis));
  }
  return axis.values.empty() ? InvalidArgument("the list is empty") : RequireDifferent(axis);
}

}  // namespace

std::vector<std::string_view> SweepKeys() {
  std::vector<std::string_view> keys = OwnFieldNames();
  keys.push_back(kScheduleAxis);
  return keys;
}

Result<std::vector<SweepAxis>> ParseSweep(const std::vector<std::string>& words) {
  std::vector<SweepAxis> axes;
  for (const std::string& word : words) {
    const Status status = ParseWord(word, axes);
    if (!status) return InvalidParameter("sweep", "{}: {}", word, status.error().line());
  }
  return axes;
}

Result<std::vector<SweepAxis>> ReadSweep(const YamlMap& map) {
  std::vector<SweepAxis> axes;
  for (const std::string& word : map.Keys()) {
    auto key = FindAxis(word);
    if (!key) return map.Refuse(word, "{}", key.error().line());
    if (Find(axes, *key) != nullptr) return map.Refuse(word, "it is given twice");
    SweepAxis& axis = axes.emplace_back(SweepAxis{*std::move(key), {}});
    const Status status = ReadValues(map.Node(word), axis);
    if (!status) return map.Refuse(word, "{}", status.error().line());
  }
  return axes;
}

}  // namespace penstock
