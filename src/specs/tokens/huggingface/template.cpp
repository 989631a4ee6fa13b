#include "tokens/huggingface/template.h"

#include "base/text/strict_json.h"
#include "tokens/huggingface/json_parts.h"

namespace penstock {
namespace {

using nlohmann::json;

constexpr const char* kPostProcessor = "post_processor";

// Returns the ids of a special token that the template names.
Result<std::vector<TokenId>> IdsOfSpecial(const json& part, const std::string& name) {
  PENSTOCK_TRY(const json* const all, MemberOf(part, "special_tokens", kPostProcessor));
  PENSTOCK_TRY(const json* const token, MemberOf(*all, name.c_str(), kPostProcessor));
  PENSTOCK_TRY(const json* const values, MemberOf(*token, "ids", kPostProcessor));
  std::vector<TokenId> ids;
  for (const json& value : *values) {
    PENSTOCK_TRY(const TokenId id, ReadId(value, kPostProcessor));
    ids.push_back(id);
  }
  return ids;
}

Status AddTemplate(const json& part, Template& to) {
  PENSTOCK_TRY(const json* const items, MemberOf(part, "single", kPostProcessor));
  std::vector<TokenId> before;
  std::vector<TokenId> after;
  bool has_text = false;
  if (!items->is_array()) return InvalidArgument("{}: 'single' is not a list", kPostProcessor);
  for (const json& item : *items) {
    if (item.is_object() && item.contains("Sequence")) {
      if (has_text) return InvalidArgument("{}: the text appears twice", kPostProcessor);
      has_text = true;
      continue;
    }
    PENSTOCK_TRY(const json* const special, MemberOf(item, "SpecialToken", kPostProcessor));
    PENSTOCK_TRY(const std::string name, TextMember(*special, "id", kPostProcessor));
    PENSTOCK_TRY(const std::vector<TokenId> ids, IdsOfSpecial(part, name));
    std::vector<TokenId>& side = has_text ? after : before;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (!has_text) return InvalidArgument("{}: the template lacks the text", kPostProcessor);
  to.before.insert(to.before.begin(), before.begin(), before.end());
  to.after.insert(to.after.end(), after.begin(), after.end());
  return {};
}

}  // namespace

Result<Template> Template::Read(const json& file) {
  Template read;
  PENSTOCK_TRY_STATUS(ForEachPart(file, kPostProcessor, "processors",
                                  [&](const json& part, const std::string& type) -> Status {
                                    if (type == "TemplateProcessing")
                                      return AddTemplate(part, read);
                                    // It changes only offsets.
                                    if (type == "ByteLevel") return {};
                                    return UnsupportedType(kPostProcessor, type);
                                  }));
  return read;
}

}  // namespace penstock
