// Reads the parts of a tokenizer.json, which are objects with a type.
//
// Errors: kInvalidArgument, one line that names the part.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "tokens/text/pattern.h"

namespace penstock {

// Returns a member that is true, false or missing.
Result<bool> FlagMember(const nlohmann::json& object, const char* key, std::string_view what,
                        bool otherwise);
// Returns a member that is a text, null or missing; the last two as an empty text.
Result<std::string> OptionalText(const nlohmann::json& object, const char* key,
                                 std::string_view what);
// Returns an id, which is below 2^20. Vocabularies have fewer ids.
Result<std::uint32_t> ReadId(const nlohmann::json& value, std::string_view what);

// Calls `add(part, type)` for the member `key` of the file: for each part of a Sequence, whose list
// is the member `list`, otherwise for the part itself. Does nothing if it is null or missing.
Status ForEachPart(
    const nlohmann::json& file, const char* key, const char* list,
    const std::function<Status(const nlohmann::json& part, const std::string& type)>& add);

// Returns the error for a part of a type that we do not read.
tl::unexpected<Error> UnsupportedType(std::string_view what, std::string_view type);

// Reads the member "pattern" of a part: {"Regex": ...} or {"String": ...}.
Result<Pattern> PatternMember(const nlohmann::json& part, std::string_view what);

}  // namespace penstock
