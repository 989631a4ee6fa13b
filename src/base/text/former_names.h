// Former names of keys and options. Files and command lines that use one keep working; --help and
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

}  // namespace penstock
