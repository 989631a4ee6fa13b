// Where an option was given: errors from any layer name options as the command line does; those
// that a configuration file gave are renamed to what the user wrote.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/result.h"

namespace penstock {

// By the key ("memory_limit"): the place in front of errors about it, "a.yaml: line 3".
using GivenIn = std::map<std::string, std::string, std::less<>>;

// The key of an option: "memory_limit" of "--memory-limit".
std::string KeyOf(std::string_view option);

// Returns `error` with each "--memory-limit" that a file gave as the file's key "memory_limit", and
// with the place of the first of them in front. An error that names none is about `otherwise`, a
// key, if a file gave that.
Error NameAsGiven(Error error, const GivenIn& given_in, const std::string& otherwise = "");

}  // namespace penstock
