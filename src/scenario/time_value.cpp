#include "scenario/time_value.h"

#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "base/units.h"

namespace penstock {

Result<TimeValue> ParseTimeValue(const std::string& text) {
  if (const auto number = ParseNumber(text)) return TimeValue{*number, false, text};
  if (const auto seconds = ParseSeconds(text)) return TimeValue{*seconds, true, text};
  return InvalidArgument(
      "{} is not a time; give a number in the unit of `cost`, or with `model` a number and s, ms, "
      "us or ns (5ms)",
      Quote(text));
}

Status CheckUnit(std::string_view parameter, const TimeValue& time, PlainTime plain) {
  if (plain == PlainTime::kAmbiguous && !time.has_unit && time.value != 0) {
    return InvalidParameter(parameter,
                            "{}: costs of `model` are in seconds; give {}s for seconds, or {}ms "
                            "for milliseconds",
                            time.text, time.text, time.text);
  }
  if (plain == PlainTime::kUnitOfCosts && time.has_unit) {
    return InvalidParameter(parameter,
                            "{}: the costs have no unit of time; give a number in the unit of "
                            "`cost`, or the key time_unit: s in a configuration",
                            time.text);
  }
  return {};
}

}  // namespace penstock
