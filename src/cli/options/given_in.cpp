#include "cli/options/given_in.h"

#include <algorithm>

namespace penstock {
namespace {

bool IsOptionChar(char c) { return (c >= 'a' && c <= 'z') || c == '-'; }

// Takes "--memory-limit" off the front of `text`; empty if it does not begin with an option.
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

Error NameAsGiven(Error error, const GivenIn& given_in, const std::string& otherwise) {
  for (const auto& [key, place] : given_in) {
    if (error.message.starts_with(place)) return error;  // it says so already
  }
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
