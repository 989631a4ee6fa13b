// An array of JSON objects with figures as a table, for --format csv.
#pragma once

#include <nlohmann/json.hpp>

#include "report/table.h"

namespace penstock {

// One row per object, with its values unrounded under the same names; null where an object lacks
// one. The fields of nested objects become columns after these: {"a": {"b": 1}} has "a_b". Arrays
// are left out.
Table TableOf(const nlohmann::ordered_json& objects);

}  // namespace penstock
