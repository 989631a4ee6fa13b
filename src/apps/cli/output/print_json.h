// What --json prints.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace penstock {

// Prints one object. Units are in its keys ("saved_bytes"), in "time_unit" and "memory_unit" of the
// figures of a schedule, or in "units", by key. Text that is not UTF-8 loses the bytes that are
// not.
inline void PrintObject(const nlohmann::ordered_json& object) {
  PENSTOCK_CHECK(object.is_object());
  fmt::print("{}\n", object.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace penstock
