#include "cli/options/candidate_options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/text/former_names.h"
#include "base/text/nearest.h"
#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "cli/options/schedule_options.h"

namespace penstock {
namespace {

struct IntKey {
  std::string_view key, short_form;
  std::optional<int> ScheduleOptions::*field;
};
constexpr IntKey kInts[] = {{"ranks", "p", &ScheduleOptions::ranks},
                            {"chunks", "v", &ScheduleOptions::chunks},
                            {"microbatches", "m", &ScheduleOptions::microbatches},
                            {"group", "", &ScheduleOptions::group},
                            {"slices", "", &ScheduleOptions::slices},
                            {"waves", "", &ScheduleOptions::waves},
                            {"steps", "", &ScheduleOptions::steps},
                            {"replicas", "", &ScheduleOptions::replicas},
                            {"iteration", "", &ScheduleOptions::iteration},
                            {"offload_sharing", "", &ScheduleOptions::offload_sharing},
                            {"seed", "", &ScheduleOptions::seed},
                            {"runs", "", &ScheduleOptions::runs}};

struct TextKey {
  std::string_view key;
  std::optional<std::string> ScheduleOptions::*field;
};
constexpr TextKey kTexts[] = {{"weights", &ScheduleOptions::weights},
                              {"trace_rule", &ScheduleOptions::trace_rule},
                              {"cost", &ScheduleOptions::cost},
                              {"objective", &ScheduleOptions::objective},
                              {"overlap", &ScheduleOptions::overlap},
                              {"microbatch_lengths", &ScheduleOptions::microbatch_lengths},
                              {"transfers", &ScheduleOptions::transfers},
                              {"jitter", &ScheduleOptions::jitter},
                              {"memory_limit", &ScheduleOptions::memory_limit},
                              {"activation_bytes", &ScheduleOptions::activation_bytes},
                              {"message_bytes", &ScheduleOptions::message_bytes}};

struct ListKey {
  std::string_view key;
  std::vector<std::string> PassOptions::*field;
};
constexpr ListKey kLists[] = {{"pass", &PassOptions::passes}, {"price", &PassOptions::prices}};

bool IsList(std::string_view key) { return key == "pass" || key == "price"; }
// Whether the key has one value, which a configuration may give as a list.
bool IsJoined(std::string_view key) { return key == "cost" || key == "microbatch_lengths"; }

// Refuses a value that the option rejects for every schedule.
Status Set(const std::string& key, const std::string& value, ScheduleOptions& options) {
  for (const IntKey& known : kInts) {
    if (key != known.key) continue;
    PENSTOCK_TRY(options.*known.field, ParseInt(value));
    return {};
  }
  for (const TextKey& known : kTexts) {
    if (key == known.key) options.*known.field = value;
  }
  for (const ListKey& known : kLists) {
    if (key == known.key) (options.passes.*known.field).push_back(value);
  }
  if (key == "comm") {
    PENSTOCK_TRY(options.comm, ParseTimeOption(value));
  }
  if (key == "launch") {
    PENSTOCK_TRY(options.launch, ParseTimeOption(value));
  }
  if (key == "split") {
    if (value != "true" && value != "false") return InvalidArgument("true or false is needed");
    options.split = value == "true";
  }
  return {};
}

}  // namespace

std::vector<std::string_view> ScheduleOptionKeys() {
  std::vector<std::string_view> keys = {"split", "comm", "launch"};
  for (const IntKey& known : kInts) keys.push_back(known.key);
  for (const TextKey& known : kTexts) keys.push_back(known.key);
  for (const ListKey& known : kLists) keys.push_back(known.key);
  return keys;
}

bool MayContainCommas(std::string_view key) { return IsList(key) || IsJoined(key); }

Result<std::string> FindScheduleOption(std::string_view word,
                                       std::span<const std::string_view> more) {
  std::string key(word);
  std::replace(key.begin(), key.end(), '-', '_');
  key = CurrentName(key);
  for (const IntKey& known : kInts) {
    if (!known.short_form.empty() && key == known.short_form) return std::string(known.key);
  }
  std::vector<std::string_view> keys = ScheduleOptionKeys();
  keys.insert(keys.end(), more.begin(), more.end());
  if (std::find(keys.begin(), keys.end(), key) != keys.end()) return key;
  return InvalidArgument("{} is not an option of a schedule; {}", Quote(word),
                         DidYouMean(key, keys, fmt::format("there are {}", fmt::join(keys, ", "))));
}

Result<CandidateOptions> ParseCandidateOptions(std::string_view text) {
  CandidateOptions given;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(':', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const std::size_t equals = std::min(word.find('='), word.size());
    PENSTOCK_TRY(std::string key, FindScheduleOption(word.substr(0, equals)));
    std::string value(word.substr(std::min(equals + 1, word.size())));
    if (key == "split" && equals == word.size()) value = "true";
    if (value.empty()) return InvalidArgument("{} has no value; write {}=VALUE", Quote(word), key);
    given.emplace_back(std::move(key), std::move(value));
    begin = end + 1;
  }
  return given;
}

Result<CandidateOptions> ReadCandidateOptions(const YamlMap& map) {
  CandidateOptions given;
  for (const std::string& word : map.Keys()) {
    if (word == "schedule" || word == "csv") continue;
    auto key = FindScheduleOption(word);
    if (!key) return map.Refuse(word, "{}", key.error().line());
    PENSTOCK_TRY(const auto texts, map.Texts(word));
    std::vector<std::string> values = texts.value_or(std::vector<std::string>());
    if (IsJoined(*key)) values.assign(1, fmt::format("{}", fmt::join(values, ",")));
    if (values.size() > 1 && !IsList(*key)) return map.Refuse(word, "one value is needed");
    for (std::string& value : values) given.emplace_back(*key, std::move(value));
  }
  return given;
}

Status ApplyCandidateOptions(const CandidateOptions& given, ScheduleOptions& options) {
  std::set<std::string_view> seen;
  for (const auto& [key, value] : given) {
    const bool first = seen.insert(key).second;
    if (key == "cost") {
      options.stage_costs.reset();
      options.layer_costs.clear();
      options.costs_in_bytes = false;
    }
    if (!first && !IsList(key)) return InvalidArgument("{} is given twice", key);
    if (first && key == "pass") options.passes.passes.clear();
    if (first && key == "price") options.passes.prices.clear();
    const Status status = Set(key, value, options);
    if (!status) return InvalidArgument("{}: {}", key, status.error().line());
    options.given_in.erase(key);
  }
  return {};
}

}  // namespace penstock
