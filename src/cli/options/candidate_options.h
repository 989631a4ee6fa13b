// Options of a single candidate, which win over those of the command: "interleaved:v=4:m=64", or a
// map in a configuration.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/yaml_map.h"

namespace penstock {

// Keys as in a configuration ("microbatches") with their values as text; a key may repeat only
// where the option takes a list (pass, price).
using CandidateOptions = std::vector<std::pair<std::string, std::string>>;

// Reads "v=4:m=64:split". Keys are the options' words, with '-' or '_', or their short forms.
// Errors: kInvalidArgument, naming the key.
Result<CandidateOptions> ParseCandidateOptions(std::string_view text);

// Reads every key of a map but `schedule` and `csv`.
Result<CandidateOptions> ReadCandidateOptions(const YamlMap& map);

struct ScheduleOptions;

// Sets what the candidate says.
Status ApplyCandidateOptions(const CandidateOptions& given, ScheduleOptions& options);

}  // namespace penstock
