// Reads the JSON of files that other programs, a failing disk or an attacker may have written.
//
// Errors: kInvalidArgument, one line without the file's name.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace penstock {

// Parses an object. Refuses repeated keys (some readers use the first value, some the last), and
// nesting deeper than `deepest` levels, which would take many times the memory of the text.
Result<nlohmann::json> ParseStrictJson(std::string_view text, int deepest = 8);

// Returns a member of an object. `what` names the object in errors: "tensor 'a'".
Result<const nlohmann::json*> MemberOf(const nlohmann::json& object, const char* key,
                                       std::string_view what);
Result<std::string> TextMember(const nlohmann::json& object, const char* key,
                               std::string_view what);
// Reads a whole number of at least 0.
Result<std::uint64_t> CountMember(const nlohmann::json& object, const char* key,
                                  std::string_view what,
                                  std::uint64_t most = std::numeric_limits<std::int64_t>::max());
// Reads an array of whole numbers of at least 0, such as a shape.
Result<std::vector<std::int64_t>> CountsMember(const nlohmann::json& object, const char* key,
                                               std::string_view what);

}  // namespace penstock
