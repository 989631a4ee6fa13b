// Options with one value, parsed by base/text/numbers.h. CLI11's own conversion accepts an empty
// text as a number and reads 010 as 8.
#pragma once

#include <CLI/CLI.hpp>
#include <limits>
#include <optional>
#include <string>

namespace penstock {

struct IntRange {
  int least = std::numeric_limits<int>::min();
  int most = std::numeric_limits<int>::max();
};

// Each adds an option that sets `value`, which must outlive the app. They refuse an empty text.
CLI::Option* AddInt(CLI::App& app, const std::string& names, std::optional<int>& value,
                    const std::string& help, IntRange range = {});
CLI::Option* AddNumber(CLI::App& app, const std::string& names, std::optional<double>& value,
                       const std::string& help);
CLI::Option* AddText(CLI::App& app, const std::string& names, std::optional<std::string>& value,
                     const std::string& help);
CLI::Option* AddText(CLI::App& app, const std::string& names, std::string& value,
                     const std::string& help);

}  // namespace penstock
