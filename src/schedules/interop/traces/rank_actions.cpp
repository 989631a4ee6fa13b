#include "interop/traces/rank_actions.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>
#include <filesystem>
#include <map>
#include <tuple>
#include <utility>

#include "base/text/quote.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

constexpr const char* kGpuCategory = "gpu_user_annotation";
constexpr int kMostIndex = 1 << 24;

// What a name stands for.
struct NameMeaning {
  enum class Kind { kNothing, kAction, kWait, kStep };

  Kind kind = Kind::kNothing;
  RecordedAction action;
  int rank = -1;    // of the group
  int number = -1;  // of the step; -1 if the name has none
};

// Digits before text, and numbers by their value: rank2 < rank10.
std::vector<std::pair<long, std::string>> NaturalKey(const std::string& text) {
  std::vector<std::pair<long, std::string>> key;
  for (std::size_t at = 0; at < text.size();) {
    long number = 0;
    const char* const begin = text.data() + at;
    const auto [end, error] = std::from_chars(begin, text.data() + text.size(), number);
    if (error == std::errc() && *begin != '-') {
      key.emplace_back(number, "");
      at += static_cast<std::size_t>(end - begin);
    } else {
      key.emplace_back(-1, text.substr(at++, 1));
    }
  }
  return key;
}

Result<int> IndexOfGroup(const NamePattern::Groups& groups, const char* group,
                         const std::string& name) {
  const auto found = groups.find(group);
  if (found == groups.end()) return -1;
  int value = -1;
  const char* const last = found->second.data() + found->second.size();
  const auto [end, error] = std::from_chars(found->second.data(), last, value);
  if (error != std::errc() || end != last || value < 0 || value > kMostIndex) {
    return InvalidArgument("event {}: its {} is {}, not a number from 0 to {}; change the rule",
                           Quote(name), group, Quote(found->second), kMostIndex);
  }
  return value;
}

Result<NameMeaning> MeaningOfAction(const EventRule& rule, const NamePattern::Groups& groups,
                                    const std::string& name) {
  NameMeaning meaning;
  meaning.kind = NameMeaning::Kind::kAction;
  meaning.action.name = name;
  Action& action = meaning.action.action;
  if (!rule.op) {
    const auto text = groups.find("action");
    auto parsed = ParseAction(text == groups.end() ? "" : text->second);
    if (!parsed) return tl::unexpected(In(fmt::format("event {}", Quote(name)), parsed.error()));
    if (!IsCompute(*parsed)) return NameMeaning();
    action = *parsed;
    meaning.action.has_stage = meaning.action.has_microbatch = true;
  } else {
    action.first.op = *rule.op;
  }
  PENSTOCK_TRY(const int stage, IndexOfGroup(groups, "stage", name));
  PENSTOCK_TRY(const int microbatch, IndexOfGroup(groups, "microbatch", name));
  PENSTOCK_TRY(meaning.action.chunk, IndexOfGroup(groups, "chunk", name));
  PENSTOCK_TRY(meaning.rank, IndexOfGroup(groups, "rank", name));
  if (stage >= kMaxStages) {
    return InvalidArgument("event {}: stage {}: at most {} stages", Quote(name), stage, kMaxStages);
  }
  if (stage >= 0) action.first.stage = static_cast<std::uint16_t>(stage);
  if (microbatch >= 0) action.first.microbatch = microbatch;
  meaning.action.has_stage = meaning.action.has_stage || stage >= 0;
  meaning.action.has_microbatch = meaning.action.has_microbatch || microbatch >= 0;
  return meaning;
}

Result<NameMeaning> MeaningOf(const std::string& name, const TraceRule& rule) {
  for (const EventRule& event : rule.events) {
    if (const auto groups = event.pattern.Search(name)) {
      return MeaningOfAction(event, *groups, name);
    }
  }
  NameMeaning meaning;
  for (const NamePattern& pattern : rule.waits) {
    if (pattern.Search(name)) meaning.kind = NameMeaning::Kind::kWait;
  }
  for (const NamePattern& pattern : rule.steps) {
    const auto groups = pattern.Search(name);
    if (!groups || meaning.kind != NameMeaning::Kind::kNothing) continue;
    meaning.kind = NameMeaning::Kind::kStep;
    PENSTOCK_TRY(meaning.number, IndexOfGroup(*groups, "step", name));
  }
  return meaning;
}

// The events that the rule reads, with what they mean. A thread belongs to one rank.
class EventMatcher {
 public:
  EventMatcher(const std::vector<TraceFile>& files, const TraceRule& rule)
      : files_(files), rule_(rule) {}

  Result<std::vector<RankActions>> Run() {
    for (std::size_t file = 0; file < files_.size(); ++file) {
      PENSTOCK_TRY_STATUS(ReadFileEvents(file));
    }
    if (matched_.empty()) {
      return InvalidArgument("no event matches the rule {}; the first names are: {}", rule_.name,
                             FirstNames());
    }
    KeepGpu();
    ChooseSource();
    return Group();
  }

 private:
  struct Matched {
    std::size_t file;
    const TraceEvent* event;
    const NameMeaning* meaning;
  };
  using Key = std::vector<std::pair<long, std::string>>;
  using Thread = std::tuple<std::size_t, std::uint32_t, std::uint32_t>;

  Status ReadFileEvents(std::size_t file) {
    const TraceFile& trace = files_[file];
    std::vector<const NameMeaning*> known(trace.texts.size());
    for (const TraceEvent& event : trace.events) {
      const std::string& name = trace.texts[event.name];
      if (known[event.name] == nullptr) {
        auto meaning = MeaningOf(name, rule_);
        if (!meaning) return tl::unexpected(In(trace.path, meaning.error()));
        known[event.name] = &meanings_.emplace_back(std::move(*meaning));
      }
      const NameMeaning& meaning = *known[event.name];
      const bool is_action = meaning.kind == NameMeaning::Kind::kAction;
      if (meaning.kind == NameMeaning::Kind::kNothing) continue;
      if (is_action && !rule_.category.empty() && trace.texts[event.category] != rule_.category) {
        continue;
      }
      // Up to a hundred years, so that sums stay finite.
      constexpr double kMostMicroseconds = 4e15;
      if (!(std::abs(event.start) <= kMostMicroseconds) ||
          !(event.duration >= 0 && event.duration <= kMostMicroseconds)) {
        return InvalidArgument("{}: event {}: ts {} and dur {} are not a time and a duration",
                               trace.path, Quote(name), event.start, event.duration);
      }
      (is_action ? matched_ : others_).push_back({file, &event, &meaning});
    }
    return {};
  }

  std::string FirstNames() const {
    std::vector<std::string> names;
    for (const TraceFile& file : files_) {
      for (const TraceEvent& event : file.events) {
        const std::string name = Quote(file.texts[event.name]);
        if (std::ranges::find(names, name) == names.end()) names.push_back(name);
        if (names.size() == 3) break;
      }
      if (names.size() == 3) break;
    }
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    return text.empty() ? "there are none" : text;
  }

  static Thread ThreadOf(const Matched& each) {
    return {each.file, each.event->process, each.event->thread};
  }
  bool OnGpu(const Matched& each) const {
    return files_[each.file].texts[each.event->category] == kGpuCategory;
  }

  // When the device ran a range, where the trace has it: on the CPU, a range ends when its kernels
  // are launched. A range has an event on each of its streams; the one with most events computes.
  void KeepGpu() {
    if (std::ranges::none_of(matched_, [&](const Matched& each) { return OnGpu(each); })) return;
    const auto on_cpu = [&](const Matched& each) { return !OnGpu(each); };
    std::erase_if(matched_, on_cpu);
    std::erase_if(others_, on_cpu);
    std::map<Thread, int> counts;
    for (const Matched& each : matched_) ++counts[ThreadOf(each)];
    std::map<std::pair<std::size_t, std::uint32_t>, std::pair<int, std::uint32_t>> most;
    for (const auto& [thread, count] : counts) {
      auto& best = most[{std::get<0>(thread), std::get<1>(thread)}];
      if (count > best.first) best = {count, std::get<2>(thread)};
    }
    std::erase_if(matched_, [&](const Matched& each) {
      return most[{each.file, each.event->process}].second != each.event->thread;
    });
  }

  void ChooseSource() {
    source_ = rule_.rank;
    if (source_ != RankSource::kAny) return;
    const auto differs = [&](const Matched& each) {
      return each.event->process != matched_.front().event->process;
    };
    source_ = files_.size() > 1                        ? RankSource::kFile
              : std::ranges::any_of(matched_, differs) ? RankSource::kProcess
                                                       : RankSource::kThread;
  }

  // Sorts as the ranks do.
  Key KeyOf(const Matched& each) const {
    const TraceFile& file = files_[each.file];
    if (source_ == RankSource::kGroup) return {{each.meaning->rank, ""}};
    if (source_ == RankSource::kFile) return {{static_cast<long>(each.file), ""}};
    Key key = NaturalKey(file.texts[each.event->process]);
    key.insert(key.begin(), {static_cast<long>(each.file), ""});
    if (source_ == RankSource::kProcess) return key;
    const Key thread = NaturalKey(file.texts[each.event->thread]);
    key.emplace_back(-1, "");
    key.insert(key.end(), thread.begin(), thread.end());
    return key;
  }
  std::string SourceOf(const Matched& each) const {
    const TraceFile& file = files_[each.file];
    switch (source_) {
      case RankSource::kGroup:
        return fmt::format("rank {}", each.meaning->rank);
      case RankSource::kProcess:
        return "process " + file.texts[each.event->process];
      case RankSource::kThread:
        return "thread " + file.texts[each.event->thread];
      default:
        return std::filesystem::path(file.path).filename().string();
    }
  }

  Result<std::vector<RankActions>> Group() {
    std::map<Key, RankActions> ranks;
    std::map<Thread, Key> rank_of;
    for (const Matched& each : matched_) {
      const Key key = KeyOf(each);
      RankActions& rank = ranks[key];
      if (rank.actions.empty()) rank.source = SourceOf(each);
      rank.actions.push_back(each.meaning->action);
      rank.actions.back().span = SpanOf(each);
      rank_of[ThreadOf(each)] = key;
    }
    std::map<Key, std::vector<Span>> waits;
    std::map<Key, std::vector<RecordedStep>> steps;
    for (const Matched& each : others_) {
      const auto key = rank_of.find(ThreadOf(each));
      if (key == rank_of.end()) continue;
      if (each.meaning->kind == NameMeaning::Kind::kWait) {
        waits[key->second].push_back(SpanOf(each));
      } else {
        steps[key->second].push_back({SpanOf(each), each.meaning->number});
      }
    }
    std::vector<RankActions> all;
    for (auto& [key, rank] : ranks) {
      std::ranges::stable_sort(rank.actions, {},
                               [](const RecordedAction& a) { return a.span.start; });
      LeaveOutWaits(waits[key], rank.actions);
      rank.steps = std::move(steps[key]);
      all.push_back(std::move(rank));
    }
    if (source_ == RankSource::kFile) PENSTOCK_TRY_STATUS(RequireAllFiles(all));
    return all;
  }

  Status RequireAllFiles(const std::vector<RankActions>& all) const {
    for (const TraceFile& file : files_) {
      const std::string name = std::filesystem::path(file.path).filename().string();
      if (std::ranges::find(all, name, &RankActions::source) != all.end()) continue;
      return InvalidArgument("{}: no event matches the rule {}; is it of the same run?", file.path,
                             rule_.name);
    }
    return {};
  }

  Span SpanOf(const Matched& each) const {
    // Files of one run may count from different times.
    const double shift =
        static_cast<double>(files_[each.file].base_nanoseconds - files_.front().base_nanoseconds) /
        1e3;
    const double start = each.event->start + shift;
    return {start, start + each.event->duration};
  }

  // An action that waits for its input first starts when the first wait in it ends.
  static void LeaveOutWaits(std::vector<Span>& waits, std::vector<RecordedAction>& actions) {
    std::ranges::sort(waits, {}, &Span::start);
    for (RecordedAction& action : actions) {
      const auto wait = std::ranges::lower_bound(waits, action.span.start, {}, &Span::start);
      if (wait != waits.end() && wait->end <= action.span.end) action.span.start = wait->end;
    }
  }

  const std::vector<TraceFile>& files_;
  const TraceRule& rule_;
  std::vector<Matched> matched_, others_;
  std::deque<NameMeaning> meanings_;
  RankSource source_ = RankSource::kAny;
};

}  // namespace

Result<std::vector<RankActions>> MatchEvents(const std::vector<TraceFile>& files,
                                             const TraceRule& rule) {
  return EventMatcher(files, rule).Run();
}

bool Matches(const std::vector<TraceFile>& files, const TraceRule& rule) {
  return std::ranges::any_of(files, [&](const TraceFile& file) {
    return std::ranges::any_of(file.texts, [&](const std::string& text) {
      return std::ranges::any_of(rule.events, [&](const EventRule& event) {
        return event.pattern.Search(text).has_value();
      });
    });
  });
}

}  // namespace penstock
