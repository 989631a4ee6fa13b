// How much memory this process can still get.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace penstock {

struct AvailableMemory {
  std::int64_t bytes = 0;
  std::string of;  // what sets the limit: "this machine" or "the control group /a/b"
};

// The least of the machine's available memory and of what each control group above the process
// leaves; page cache counts as available. None where the system says nothing. `root` stands for
// "/", in tests.
std::optional<AvailableMemory> ReadAvailableMemory(const std::string& root = "");

}  // namespace penstock
