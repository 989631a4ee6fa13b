// Former and other names of keys and options. Files and command lines that use one work; --help and
// the documents know only the current name.
#pragma once

#include <string_view>

namespace penstock {

// Returns the current name of a key ("cuts") or an option ("--cuts"). Returns any other word
// unchanged.
constexpr std::string_view CurrentName(std::string_view name) {
  if (name == "cuts") return "slices";
  if (name == "cut_lengths") return "slice_lengths";
  if (name == "--cuts") return "--slices";
  return name;
}

// Returns today's name of a key of a training configuration with its section.
constexpr std::string_view CurrentKey(std::string_view key) {
  if (key == "memory_limit") return "max_memory";
  return key == "parallel.pipeline" ? "pipeline.ranks" : key;
}

// Former names of a scenario's fields, which work for one release, with a note.
struct FormerName {
  std::string_view former, current;
};
inline constexpr FormerName kFormerFieldNames[] = {{"data", "data_parallel"},
                                                   {"weights", "weight_policy"}};

}  // namespace penstock
