#include "cli/options/output_format.h"

#include <array>

#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "cli/help/offered_values.h"
#include "cli/options/option_values.h"

namespace penstock {
namespace {

constexpr std::array<std::string_view, 3> kFormatNames = {"table", "csv", "json"};

}  // namespace

void FormatOptions::Define(CLI::App& app) {
  app.option_defaults()->group("Output");
  Offer(AddText(app, "--format", format, "Output as table, csv or json")->type_name("FORMAT"),
        {kFormatNames.begin(), kFormatNames.end()});
  app.add_flag("--json", json, "The same as --format json");
}

Result<OutputFormat> FormatOptions::Format() const {
  if (json) {
    if (format && *format != "json") {
      return InvalidArgument("--json and --format {} contradict each other", Quote(*format));
    }
    return OutputFormat::kJson;
  }
  if (!format || *format == "table") return OutputFormat::kTable;
  if (*format == "csv") return OutputFormat::kCsv;
  if (*format == "json") return OutputFormat::kJson;
  return InvalidArgument("--format {}: give table, csv or json{}", Quote(*format),
                         Suggestion(*format, {kFormatNames.begin(), kFormatNames.end()}));
}

}  // namespace penstock
