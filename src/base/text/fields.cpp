#include "base/text/fields.h"

#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/from_chars.h"
#include "base/text/nearest.h"
#include "base/text/quote.h"

namespace penstock {
namespace {

template <class T>
std::optional<T> ParseAs(std::string_view text) {
  T value{};
  const auto [end, error] = FromChars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

template <class T>
Status Set(const Field& field, T* target, std::string_view text) {
  const FieldRange& range = field.range;
  if (range.automatic && text == "auto") {
    *target = 0;
    return {};
  }
  const std::optional<T> value = ParseAs<T>(text);
  if (!value || !std::isfinite(static_cast<double>(*value))) {
    return InvalidParameter(field.key, ": {} is not a {}number{}", Quote(text),
                            std::is_integral_v<T> ? "whole " : "",
                            range.automatic ? " or 'auto'" : "");
  }
  const auto number = static_cast<double>(*value);
  if (number < range.least || number > range.most) {
    return InvalidParameter(field.key, ": {} is out of range: {} {}", text,
                            number < range.least ? "at least" : "at most",
                            number < range.least ? range.least : range.most);
  }
  *target = *value;
  return {};
}

Status Set(const Field& field, std::string* target, std::string_view text) {
  const std::vector<std::string_view> choices = Words(field.range.choices);
  if (!choices.empty() && std::find(choices.begin(), choices.end(), text) == choices.end()) {
    return InvalidParameter(field.key, ": {} is not one of {}{}", Quote(text),
                            fmt::join(choices, ", "), Suggestion(text, choices));
  }
  // YAML and one-line messages cannot represent such text.
  if (Printable(text) != text) {
    return InvalidParameter(field.key, ": {} has a control character or is not UTF-8", Quote(text));
  }
  *target = text;
  return {};
}

Status Set(const Field& field, bool* target, std::string_view text) {
  if (text != "true" && text != "false") {
    return InvalidParameter(field.key, ": {} is neither true nor false", Quote(text));
  }
  *target = text == "true";
  return {};
}

Status SetAll(const Field& field, std::vector<std::int64_t>* target,
              std::span<const std::string_view> items) {
  std::vector<std::int64_t> numbers;
  for (const std::string_view item : items) {
    std::int64_t number = 0;
    PENSTOCK_TRY_STATUS(Set(field, &number, item));
    numbers.push_back(number);
  }
  *target = std::move(numbers);
  return {};
}

Status Set(const Field& field, std::vector<std::int64_t>* target, std::string_view text) {
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  std::vector<std::string_view> items;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(','), text.size());
    std::string_view item = text.substr(0, end);
    while (item.starts_with(' ')) item.remove_prefix(1);
    items.push_back(item);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return SetAll(field, target, items);
}

}  // namespace

std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

Status SetField(const Field& field, std::string_view text) {
  return std::visit([&](auto* target) { return Set(field, target, text); }, field.value);
}

Status SetItems(const Field& field, std::span<const std::string_view> items) {
  return SetAll(field, std::get<std::vector<std::int64_t>*>(field.value), items);
}

std::string FieldText(const Field& field) {
  return std::visit(
      [&](const auto* value) -> std::string {
        using T = std::remove_cv_t<std::remove_pointer_t<decltype(value)>>;
        if constexpr (std::is_same_v<T, std::string>) {
          return *value;
        } else if constexpr (std::is_same_v<T, bool>) {
          return *value ? "true" : "false";
        } else if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) {
          return fmt::format("[{}]", fmt::join(*value, ", "));
        } else {
          return field.range.automatic && *value == 0 ? "auto" : fmt::format("{}", *value);
        }
      },
      field.value);
}

std::string FieldYaml(const Field& field) {
  if (!IsText(field)) return FieldText(field);
  YAML::Emitter out;
  out << YAML::DoubleQuoted << FieldText(field);
  return out.c_str();
}

bool IsText(const Field& field) { return std::holds_alternative<std::string*>(field.value); }

bool IsList(const Field& field) {
  return std::holds_alternative<std::vector<std::int64_t>*>(field.value);
}

}  // namespace penstock
