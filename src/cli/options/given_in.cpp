#include "cli/options/given_in.h"

#include <algorithm>

namespace penstock {
namespace {

// Parameters of the libraries that have an option of the same name.
constexpr std::string_view kOptions[] = {"ranks",
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
                                         "comm",
                                         "overlap",
                                         "offload_sharing",
                                         "microbatch_lengths",
                                         "price",
                                         "trace_rule",
                                         "iteration",
                                         "slow_rank",
                                         "model",
                                         "device",
                                         "nodes",
                                         "precision",
                                         "sequence",
                                         "micro_batch_size",
                                         "flops_efficiency",
                                         "tensor",
                                         "data",
                                         "expert",
                                         "zero",
                                         "bandwidth_efficiency",
                                         "temperature",
                                         "top_k",
                                         "hidden_communication",
                                         "top_p",
                                         "tokens"};

bool IsOptionChar(char c) { return (c >= 'a' && c <= 'z') || c == '-'; }

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

Error NameOption(Error error) {
  if (std::ranges::find(kOptions, error.parameter) != std::end(kOptions)) {
    error.parameter = OptionOf(error.parameter);
  }
  return error;
}

Error NameAsGiven(Error error, const GivenIn& given_in, const std::string& otherwise) {
  for (const auto& [each, place] : given_in) {
    if (error.where.starts_with(place) || error.message.starts_with(place)) return error;
  }
  const bool is_option = error.parameter.starts_with("--");
  const std::string key = is_option ? KeyOf(error.parameter) : error.parameter;
  if (const auto given = given_in.find(key); given != given_in.end()) {
    error.parameter = key;
    return In(given->second, std::move(error));
  }
  error = NameOption(std::move(error));
  std::string message, place;
  for (std::string_view left = error.message; !left.empty();) {
    const std::string_view option = TakeOption(left);
    if (option.empty()) {
      message += left.front();
      left.remove_prefix(1);
      continue;
    }
    const std::string named = KeyOf(option);
    const auto given = given_in.find(named);
    message += given == given_in.end() ? option : named;
    if (place.empty() && given != given_in.end()) place = given->second;
  }
  error.message = message;
  const auto given = given_in.find(otherwise);
  if (place.empty() && given != given_in.end()) place = given->second;
  return place.empty() ? error : In(place, std::move(error));
}

}  // namespace penstock
