// Commands to copy, which --help and the manual pages show.
#pragma once

#include <string_view>
#include <vector>

namespace penstock {

struct Example {
  std::string_view command;  // whose help shows it
  std::string_view line;     // what to type
  std::string_view meaning;
};

// Returns the examples of one command, or of the program for an empty name.
std::vector<Example> ExamplesOf(std::string_view command);

}  // namespace penstock
