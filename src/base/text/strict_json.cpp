#include "base/text/strict_json.h"

#include <set>
#include <vector>

#include "base/text/quote.h"

namespace penstock {
namespace {

using nlohmann::json;

bool IsCount(const json& value) {
  return value.is_number_unsigned() &&
         value.get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max();
}

// Returns the parser's reason without its number. It quotes the last token, which may be long.
std::string ReasonOf(const json::exception& error) {
  constexpr std::size_t kLongest = 200;
  std::string_view text = error.what();
  const std::size_t number = text.find("] ");
  if (number != text.npos) text.remove_prefix(number + 2);
  return Printable(text.substr(0, kLongest)) + (text.size() > kLongest ? "..." : "");
}

}  // namespace

Result<json> ParseStrictJson(std::string_view text, int deepest) {
  std::vector<std::set<std::string>> open;  // keys of the open objects
  std::string repeated;
  bool too_deep = false;
  const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > deepest) too_deep = true;
    if (event == json::parse_event_t::object_start) open.emplace_back();
    if (event == json::parse_event_t::object_end) open.pop_back();
    if (event == json::parse_event_t::key) {
      const auto name = parsed.get<std::string>();
      if (!open.back().insert(name).second) repeated = name;
    }
    return depth <= deepest;  // false discards the value
  };
  try {
    json root = json::parse(text, check);
    if (too_deep) return InvalidArgument("it is nested more than {} levels deep", deepest);
    if (!repeated.empty()) return InvalidArgument("the name {} appears twice", Quote(repeated));
    if (!root.is_object()) return InvalidArgument("it is not a JSON object");
    return root;
  } catch (const json::exception& error) {
    return InvalidArgument("{}", ReasonOf(error));
  }
}

Result<const json*> MemberOf(const json& object, const char* key, std::string_view what) {
  if (!object.is_object()) return InvalidArgument("{} is not an object", what);
  const auto found = object.find(key);
  if (found == object.end()) return InvalidArgument("{} has no '{}'", what, key);
  return &*found;
}

Result<std::string> TextMember(const json& object, const char* key, std::string_view what) {
  PENSTOCK_TRY(const json* const value, MemberOf(object, key, what));
  if (!value->is_string()) return InvalidArgument("{}: '{}' is not a text", what, key);
  return value->get<std::string>();
}

Result<std::uint64_t> CountMember(const json& object, const char* key, std::string_view what,
                                  std::uint64_t most) {
  PENSTOCK_TRY(const json* const value, MemberOf(object, key, what));
  if (!IsCount(*value) || value->get<std::uint64_t>() > most) {
    return InvalidArgument("{}: '{}' is not a whole number from 0 to {}", what, key, most);
  }
  return value->get<std::uint64_t>();
}

Result<std::vector<std::int64_t>> CountsMember(const json& object, const char* key,
                                               std::string_view what) {
  PENSTOCK_TRY(const json* const values, MemberOf(object, key, what));
  std::vector<std::int64_t> counts;
  bool good = values->is_array();
  for (std::size_t i = 0; good && i < values->size(); ++i) {
    good = IsCount((*values)[i]);
    if (good) counts.push_back((*values)[i].get<std::int64_t>());
  }
  if (!good) return InvalidArgument("{}: '{}' is not a list of whole numbers", what, key);
  return counts;
}

}  // namespace penstock
