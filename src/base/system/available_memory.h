// The memory that this process can still allocate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace penstock {

struct AvailableMemory {
  std::int64_t bytes = 0;
  std::string of;  // what sets the limit: "this machine" or "the control group /a/b"
};

// Returns the smallest of the machine's available memory and of what each control group of the
// process leaves. Page cache counts as available. Returns nothing if the system does not report it.
// Tests pass another `root` in place of "/".
std::optional<AvailableMemory> ReadAvailableMemory(const std::string& root = "");

}  // namespace penstock
