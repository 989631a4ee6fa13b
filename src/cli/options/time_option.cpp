#include "cli/options/time_option.h"

#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "base/units.h"

namespace penstock {

Result<TimeOption> ParseTimeOption(const std::string& text) {
  if (const auto number = ParseNumber(text)) return TimeOption{*number, false, text};
  if (const auto seconds = ParseSeconds(text)) return TimeOption{*seconds, true, text};
  return InvalidArgument(
      "{} is not a time; give a number in the unit of --cost, or with --model a "
      "number and s, ms, us or ns (5ms)",
      Quote(text));
}

Status CheckUnit(std::string_view option, const TimeOption& time, PlainTime plain) {
  if (plain == PlainTime::kAmbiguous && !time.has_unit && time.value != 0) {
    return InvalidArgument(
        "{} {}: costs of --model are in seconds; give {}s for seconds, or {}ms "
        "for milliseconds",
        option, time.text, time.text, time.text);
  }
  if (plain == PlainTime::kUnitOfCosts && time.has_unit) {
    return InvalidArgument(
        "{} {}: the costs have no unit of time; give a number in the unit of --cost, or the key "
        "time_unit: s in a configuration",
        option, time.text);
  }
  return {};
}

}  // namespace penstock
