#include "cli/options/given_in.h"

#include <algorithm>
#include <array>

#include "base/text/parameter_name.h"

namespace penstock {
namespace {

bool IsOptionChar(char c) { return (c >= 'a' && c <= 'z') || c == '-'; }

// The fields of ScheduleParams and CsvOptions that users give, and the lengths of microbatches.
constexpr std::array<std::string_view, 13> kScheduleKeys = {"ranks",
                                                            "chunks",
                                                            "microbatches",
                                                            "group",
                                                            "slices",
                                                            "waves",
                                                            "steps",
                                                            "split",
                                                            "replicas",
                                                            "weights",
                                                            "memory_limit",
                                                            "objective",
                                                            "microbatch_lengths"};

// Removes "--memory-limit" from the front of `text` and returns it. Returns an empty view if `text`
// does not begin with an option.
std::string_view TakeOption(std::string_view& text) {
  if (!text.starts_with("--")) return {};
  std::size_t length = 2;
  while (length < text.size() && IsOptionChar(text[length])) ++length;
  const std::string_view option = text.substr(0, length);
  text.remove_prefix(length);
  return option;
}

}  // namespace

std::string KeyOf(std::string_view option) {
  std::string key(option.substr(2));
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

std::string OptionOf(std::string_view key) {
  std::string option = fmt::format("--{}", key);
  std::replace(option.begin(), option.end(), '_', '-');
  return option;
}

Error NameOption(Error error, std::span<const std::string_view> keys) {
  if (std::ranges::find(keys, error.parameter) != keys.end()) {
    error.parameter = OptionOf(error.parameter);
    return error;
  }
  const auto key = FindParameter(error.message, keys);
  if (!key) return error;
  const auto begin = static_cast<std::size_t>(key->data() - error.message.data());
  error.message.replace(begin, key->size(), OptionOf(*key));
  return error;
}

Error NameAsGiven(Error error, const GivenIn& given_in, const std::string& otherwise) {
  for (const auto& [key, place] : given_in) {
    if (error.where.starts_with(place) || error.message.starts_with(place)) return error;
  }
  if (const auto given = given_in.find(error.parameter); given != given_in.end()) {
    return In(given->second, std::move(error));
  }
  error = NameOption(std::move(error), kScheduleKeys);
  std::string message, place;
  for (std::string_view left = error.message; !left.empty();) {
    const std::string_view option = TakeOption(left);
    if (option.empty()) {
      message += left.front();
      left.remove_prefix(1);
      continue;
    }
    const std::string key = KeyOf(option);
    const auto given = given_in.find(key);
    message += given == given_in.end() ? option : key;
    if (place.empty() && given != given_in.end()) place = given->second;
  }
  const auto given = given_in.find(otherwise);
  if (place.empty() && given != given_in.end()) place = given->second;
  error.message = place.empty() ? message : place + ": " + message;
  return error;
}

}  // namespace penstock
