#include "interop/traces/name_pattern.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/text/nearest.h"
#include "base/text/quote.h"

namespace penstock {
namespace {

// Returns the length of the "(?<" or "(?P<" with which a named group begins, or 0. "(?<=" and
// "(?<!" begin lookbehind assertions.
std::size_t NamedGroupAt(std::string_view text) {
  for (const std::string_view opening : {"(?P<", "(?<"}) {
    if (!text.starts_with(opening) || text.size() == opening.size()) continue;
    const char next = text[opening.size()];
    return next == '=' || next == '!' ? 0 : opening.size();
  }
  return 0;
}

}  // namespace

Result<NamePattern> NamePattern::Parse(std::string_view text,
                                       const std::vector<std::string_view>& known) {
  NamePattern pattern;
  std::string plain;
  std::size_t groups = 0;
  bool in_class = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char next = text[at];
    if (next == '\\' && at + 1 < text.size()) {
      plain += next;
      plain += text[++at];
      continue;
    }
    if (next == '[') in_class = true;
    if (next == ']') in_class = false;
    plain += next;
    if (next != '(' || in_class) continue;
    const std::size_t opening = NamedGroupAt(text.substr(at));
    if (opening == 0) {
      groups += text.substr(at).starts_with("(?") ? 0 : 1;
      continue;
    }
    const std::size_t end = text.find('>', at);
    if (end == std::string_view::npos) return InvalidArgument("a group's name has no closing '>'");
    const std::string name(text.substr(at + opening, end - at - opening));
    if (std::ranges::find(known, name) == known.end()) {
      return InvalidArgument(
          "there is no group {}; {}", Quote(name),
          DidYouMean(name, known, fmt::format("use {}", fmt::join(known, ", "))));
    }
    if (!pattern.groups_.try_emplace(name, ++groups).second) {
      return InvalidArgument("the group {} appears twice", Quote(name));
    }
    at = end;
  }
  try {
    pattern.regex_ = std::regex(plain, std::regex::ECMAScript | std::regex::optimize);
  } catch (const std::regex_error&) {
    return InvalidArgument("{} is not a regular expression", Quote(std::string(text)));
  }
  return pattern;
}

std::optional<NamePattern::Groups> NamePattern::Search(const std::string& text) const {
  std::smatch match;
  try {
    if (text.size() > kMostText || !std::regex_search(text, match, regex_)) return std::nullopt;
  } catch (const std::regex_error&) {  // too complex for the library
    return std::nullopt;
  }
  Groups found;
  for (const auto& [name, number] : groups_) {
    if (match[number].matched) found[name] = match[number].str();
  }
  return found;
}

bool NamePattern::HasGroup(std::string_view name) const { return groups_.contains(name); }

}  // namespace penstock
