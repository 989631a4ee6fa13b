// The names under which users gave what an error is about. Errors of the command line name options
// ("--memory-limit"); errors of the libraries below it have a parameter ("memory_limit"). The user
// reads the option, or the key if a configuration gave it.
#pragma once

#include <map>
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

// Returns `error` with its parameter replaced by the option.
Error NameOption(Error error);

// Returns `error` with its parameter replaced by the option, unless a file gave it: then the place
// goes in front. Options in the message that a file gave become the file's keys. An error that is
// about nothing that a file gave is about `otherwise`, a key, if a file gave that.
Error NameAsGiven(Error error, const GivenIn& given_in, const std::string& otherwise = "");

}  // namespace penstock
