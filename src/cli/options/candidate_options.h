// Options of one candidate, which override those of the command: "interleaved:v=4:m=64", or a map
// in a configuration.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/text/yaml_map.h"

namespace penstock {

// Keys as in a configuration ("microbatches") with their values as text. Only keys that take a list
// (pass, price) may repeat.
using CandidateOptions = std::vector<std::pair<std::string, std::string>>;

// Every key.
std::vector<std::string_view> ScheduleOptionKeys();

// Returns the key that a word denotes: "microbatches" for "m". Keys in `more` count as keys too.
// Errors: kInvalidArgument for an unknown one; suggests the nearest.
Result<std::string> FindScheduleOption(std::string_view word,
                                       std::span<const std::string_view> more = {});

// Whether commas separate the parts of one value: cost, pass.
bool MayContainCommas(std::string_view key);

// Reads "v=4:m=64:split". Keys are the long names of the options, with '-' or '_', or short forms.
// Errors: kInvalidArgument, naming the key.
Result<CandidateOptions> ParseCandidateOptions(std::string_view text);

// Reads every key of a map except `schedule` and `csv`.
Result<CandidateOptions> ReadCandidateOptions(const YamlMap& map);

struct ScheduleOptions;

// Sets the options that the candidate gives.
Status ApplyCandidateOptions(const CandidateOptions& given, ScheduleOptions& options);

}  // namespace penstock
