#include "cli/options/option_values.h"

#include <fmt/format.h>

#include "base/text/numbers.h"

namespace penstock {
namespace {

// The name in errors: "--ranks" for "-p,--ranks".
std::string LongName(const std::string& names) { return names.substr(names.rfind(',') + 1); }

[[noreturn]] void Refuse(const std::string& names, const std::string& why) {
  throw CLI::ValidationError(LongName(names), why);
}

template <class Value>
CLI::Option* AddTextInto(CLI::App& app, const std::string& names, Value& value,
                         const std::string& help) {
  return app.add_option_function<std::string>(
      names,
      [&value, names](const std::string& text) {
        if (text.empty()) Refuse(names, "the value is empty; give one or leave the option out");
        value = text;
      },
      help);
}

}  // namespace

CLI::Option* AddInt(CLI::App& app, const std::string& names, std::optional<int>& value,
                    const std::string& help, IntRange range) {
  CLI::Option* const option = app.add_option_function<std::string>(
      names,
      [&value, names, range](const std::string& text) {
        const Result<int> read = ParseInt(text);
        if (!read) Refuse(names, read.error().line());
        if (*read < range.least)
          Refuse(names, fmt::format("at least {}, not {}", range.least, *read));
        if (*read > range.most) Refuse(names, fmt::format("at most {}, not {}", range.most, *read));
        value = *read;
      },
      help);
  return option->type_name("N");
}

CLI::Option* AddNumber(CLI::App& app, const std::string& names, std::optional<double>& value,
                       const std::string& help) {
  CLI::Option* const option = app.add_option_function<std::string>(
      names,
      [&value, names](const std::string& text) {
        const Result<double> read = ParseNumber(text);
        if (!read) Refuse(names, read.error().line());
        value = *read;
      },
      help);
  return option->type_name("X");
}

CLI::Option* AddText(CLI::App& app, const std::string& names, std::optional<std::string>& value,
                     const std::string& help) {
  return AddTextInto(app, names, value, help);
}

CLI::Option* AddText(CLI::App& app, const std::string& names, std::string& value,
                     const std::string& help) {
  return AddTextInto(app, names, value, help);
}

}  // namespace penstock
