// The names under which users gave what an error is about. Errors of the command line name options
// ("--memory-limit"); errors of the libraries below it name parameters ("memory_limit 3: ..."; see
// base/text/parameter_name.h). The user reads the option, or the key if a configuration gave it.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace penstock {

// By the key ("memory_limit"): the place in front of errors about it, "a.yaml: line 3".
using GivenIn = std::map<std::string, std::string, std::less<>>;

// Returns the key of an option: "memory_limit" for "--memory-limit".
std::string KeyOf(std::string_view option);
// Returns the option of a key: "--memory-limit" for "memory_limit".
std::string OptionOf(std::string_view key);

// Returns `error` with the parameter that it is about, one of `keys`, replaced by the option.
Error NameOption(Error error, std::span<const std::string_view> keys);

// Returns `error` with the parameter of a schedule that it is about replaced by the option. Each
// option that a file gave becomes the file's key, and the place of the first of them goes in front.
// If the error names none that a file gave, it is about `otherwise`, a key, if a file gave that.
Error NameAsGiven(Error error, const GivenIn& given_in, const std::string& otherwise = "");

}  // namespace penstock
