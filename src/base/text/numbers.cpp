#include "base/text/numbers.h"

#include <cmath>

#include "base/from_chars.h"
#include "base/text/quote.h"

namespace penstock {

Result<int> ParseInt(std::string_view text) {
  std::string_view digits = text;
  if (digits.starts_with('-')) digits.remove_prefix(1);
  const bool all_digits =
      !digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos;
  if (!all_digits) return InvalidArgument("{} is not a whole number", Quote(text));
  if (digits.size() > 1 && digits.front() == '0') {
    return InvalidArgument("{} starts with 0; write the number in decimal digits without it",
                           Quote(text));
  }
  int value = 0;
  const auto parsed = FromChars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc()) return InvalidArgument("{} is too large", Quote(text));
  return value;
}

Result<double> ParseNumber(std::string_view text) {
  double value = 0;
  const auto [end, error] = FromChars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return InvalidArgument("{} is not a number", Quote(text));
  }
  return value;
}

}  // namespace penstock
