#include "cli/values/value_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "base/text/numbers.h"
#include "base/text/quote.h"

namespace penstock {
namespace {

// Options whose value may be empty.
constexpr std::array<std::string_view, 2> kMayBeEmpty = {"prompt", "document-separator"};

bool IsWhole(std::string_view text) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

// The types that CLI11 names as C++ does; others check their values themselves. No whole number of
// an option is negative.
std::string Fault(std::string_view type, const std::string& text) {
  if ((type == "UINT" || type == "INT" || type == "N") && !IsWhole(text))
    return "a whole number of at least 0";
  if (type == "FLOAT" && !ParseNumber(text)) return "a finite number";
  return "";
}

}  // namespace

void CheckOptionValues(CLI::App& app) {
  for (CLI::Option* const option : app.get_options()) {
    if (option->get_items_expected_max() == 0) continue;
    const std::string name = option->get_single_name();
    const bool may_be_empty =
        option->get_positional() || std::ranges::find(kMayBeEmpty, name) != kMayBeEmpty.end();
    const std::string full_type = option->get_type_name();
    const std::string type = full_type.substr(0, full_type.find(':'));
    option->check([may_be_empty, type](const std::string& text) -> std::string {
      if (text.empty()) return may_be_empty ? "" : "needs a value that is not empty";
      const std::string needed = Fault(type, text);
      return needed.empty() ? "" : fmt::format("{} is not {}", Quote(text), needed);
    });
  }
}

}  // namespace penstock
