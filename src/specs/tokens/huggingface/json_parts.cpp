#include "tokens/huggingface/json_parts.h"

#include "base/text/quote.h"
#include "base/text/strict_json.h"

namespace penstock {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMostIds = 1U << 20U;

Status AddParts(const json& part, const char* key, const char* list,
                const std::function<Status(const json& part, const std::string& type)>& add) {
  PENSTOCK_TRY(const std::string type, TextMember(part, "type", key));
  if (type != "Sequence") return add(part, type);
  PENSTOCK_TRY(const json* const parts, MemberOf(part, list, key));
  if (!parts->is_array()) return InvalidArgument("{}: '{}' is not a list", key, list);
  for (const json& each : *parts) PENSTOCK_TRY_STATUS(AddParts(each, key, list, add));
  return {};
}

}  // namespace

Result<bool> FlagMember(const json& object, const char* key, std::string_view what,
                        bool otherwise) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return otherwise;
  if (!found->is_boolean()) return InvalidArgument("{}: '{}' is not true or false", what, key);
  return found->get<bool>();
}

Result<std::string> OptionalText(const json& object, const char* key, std::string_view what) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return std::string();
  return TextMember(object, key, what);
}

Result<std::uint32_t> ReadId(const json& value, std::string_view what) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= kMostIds) {
    return InvalidArgument("{}: an id is not a whole number below {}", what, kMostIds);
  }
  return value.get<std::uint32_t>();
}

Status ForEachPart(const json& file, const char* key, const char* list,
                   const std::function<Status(const json& part, const std::string& type)>& add) {
  const auto found = file.find(key);
  if (found == file.end() || found->is_null()) return {};
  return AddParts(*found, key, list, add);
}

tl::unexpected<Error> UnsupportedType(std::string_view what, std::string_view type) {
  return InvalidArgument("{}: the type {} is not supported", what, Quote(type));
}

Result<Pattern> PatternMember(const json& part, std::string_view what) {
  PENSTOCK_TRY(const json* const pattern, MemberOf(part, "pattern", what));
  if (pattern->is_object() && pattern->contains("String")) {
    PENSTOCK_TRY(const std::string text, TextMember(*pattern, "String", what));
    if (text.empty()) return InvalidArgument("{}: the pattern is empty", what);
    return Pattern::Literal(text);
  }
  PENSTOCK_TRY(const std::string expression, TextMember(*pattern, "Regex", what));
  return Pattern::Regex(expression);
}

}  // namespace penstock
