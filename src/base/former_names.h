// Keys and options that had another name once. Files and command lines that use the former name
// keep working; --help and the documents know the current one only.
#pragma once

#include <string_view>

namespace penstock {

// Returns the current name of a key ("cuts") or an option ("--cuts"); any other word as it is.
constexpr std::string_view CurrentName(std::string_view name) {
  if (name == "cuts") return "slices";
  if (name == "cut_lengths") return "slice_lengths";
  if (name == "--cuts") return "--slices";
  return name;
}

}  // namespace penstock
