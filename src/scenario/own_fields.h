// The fields that one schedule has of its own, in place of the scenario's: "interleaved:v=4:m=64",
// or a map in a configuration. A sweep varies the same fields.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/text/yaml_map.h"
#include "scenario/fields.h"

namespace penstock {

// The names of these fields.
std::vector<std::string_view> OwnFieldNames();

// Returns "did you mean 'tensor'?" for a name that is not in `known`, also for what other
// frameworks call one of them ("tp"), or where to find the list.
std::string MeantField(std::string_view name, const std::vector<std::string_view>& known);

// Returns the name of the field that a word denotes: "microbatches" for "m", "memory_limit" for
// "memory-limit". Names in `more` count as well. Errors: kInvalidArgument; suggests the nearest.
Result<std::string> FindOwnField(std::string_view word,
                                 std::span<const std::string_view> more = {});

// Reads "v=4:m=64:split". Errors: kInvalidArgument, naming the field.
Result<FieldTexts> ParseOwnFields(std::string_view text);

// Reads every key of a map except `schedule` and `csv`.
Result<FieldTexts> ReadOwnFields(const YamlMap& map);

// Sets these fields in place of the scenario's. Errors: kInvalidArgument if a value is of another
// kind or given twice.
Status ApplyOwnFields(const FieldTexts& own, Scenario& scenario);

}  // namespace penstock
