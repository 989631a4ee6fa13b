// Regular expressions with named groups, as Python and C# write them: (?<stage>\d+),
// (?P<stage>\d+).
#pragma once

#include <map>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace penstock {

class NamePattern {
 public:
  // The groups of a match that took part in it, by name.
  using Groups = std::map<std::string, std::string>;

  // Otherwise in the syntax of ECMAScript. Errors: kInvalidArgument if the syntax is wrong or a
  // group's name is not in `known`.
  static Result<NamePattern> Parse(std::string_view text,
                                   const std::vector<std::string_view>& known);

  // Searches the text, unless the pattern has ^ and $. Texts longer than kMostText never match:
  // the library's matcher recurses once per character.
  std::optional<Groups> Search(const std::string& text) const;
  bool HasGroup(std::string_view name) const;

 private:
  static constexpr std::size_t kMostText = 1024;

  std::regex regex_;
  std::map<std::string, std::size_t, std::less<>> groups_;  // numbers by name
};

}  // namespace penstock
