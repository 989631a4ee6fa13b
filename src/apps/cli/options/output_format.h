// --format table|csv|json, and --json as its short form.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "base/result.h"

namespace penstock {

enum class OutputFormat { kTable, kCsv, kJson };

struct FormatOptions {
  std::optional<std::string> format;
  bool json = false;

  void Define(CLI::App& app);
  // Errors: kInvalidArgument for another name, and where the two contradict each other.
  Result<OutputFormat> Format() const;
};

}  // namespace penstock
