#include "interop/traces/own_trace.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/text/quote.h"
#include "base/text/strict_json.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

constexpr const char* kDescription = "otherData.penstock";
constexpr std::uint64_t kMostMicroseconds = 4'000'000'000'000'000;  // a hundred years

Result<std::optional<int>> Count(const Json& run, const char* key) {
  constexpr std::uint64_t kMost = 1 << 24;
  PENSTOCK_TRY(const std::uint64_t count, CountMember(run, key, kDescription, kMost));
  return static_cast<int>(count);
}

Result<Schedule> ScheduleOf(const Json& run) {
  PENSTOCK_TRY(const std::string csv, TextMember(run, "schedule", kDescription));
  PENSTOCK_TRY(const std::string weights, TextMember(run, "weights", kDescription));
  CsvOptions options;
  PENSTOCK_TRY(options.microbatches, Count(run, "microbatches"));
  PENSTOCK_TRY(options.replicas, Count(run, "replicas"));
  PENSTOCK_TRY(options.slices, Count(run, "slices"));
  PENSTOCK_TRY(options.steps, Count(run, "steps"));
  PENSTOCK_TRY(options.weights, ParseWeights(weights));
  return ParseCsv(csv, options);
}

// The last run, if all are of one schedule.
Result<Json> LastRun(const Json& runs) {
  if (!runs.is_array() || runs.empty()) return InvalidArgument("{} has no runs", kDescription);
  std::set<std::string> schedules;
  std::string labels;
  for (const Json& run : runs) {
    PENSTOCK_TRY(std::string schedule, TextMember(run, "schedule", kDescription));
    PENSTOCK_TRY(const std::string label, TextMember(run, "label", kDescription));
    schedules.insert(std::move(schedule));
    labels += (labels.empty() ? "" : "; ") + label;
  }
  if (schedules.size() == 1) return runs.back();
  return InvalidArgument("the trace has {} schedules ({}); write one of each by 'penstock report'",
                         schedules.size(), labels);
}

// The events of each rank of a run, in the order of the file, which is the lanes' order.
std::vector<std::vector<const TraceEvent*>> EventsByRank(const TraceFile& file, std::size_t run,
                                                         std::size_t ranks) {
  std::map<std::string, std::size_t> rank_of;
  for (std::size_t rank = 0; rank < ranks; ++rank) rank_of[std::to_string(rank)] = rank;
  const std::string process = std::to_string(run);
  std::vector<std::vector<const TraceEvent*>> events(ranks);
  for (const TraceEvent& event : file.events) {
    const auto rank = rank_of.find(file.texts[event.thread]);
    if (file.texts[event.process] != process || rank == rank_of.end()) continue;
    events[rank->second].push_back(&event);
  }
  return events;
}

bool IsSound(const TraceEvent& event) {
  constexpr auto kMost = static_cast<double>(kMostMicroseconds);
  return event.start >= 0 && event.start <= kMost && event.duration >= 0 && event.duration <= kMost;
}

// What the trace does not draw takes no time.
Result<std::vector<Span>> SpansOf(const Lane& lane, const TraceFile& file,
                                  const std::vector<const TraceEvent*>& events) {
  constexpr double kRounding = 0.01;  // of the file, in microseconds
  std::vector<Span> spans;
  auto next = events.begin();
  double now = 0;
  for (const Action& action : lane) {
    const std::string name = ToText(action);
    const bool drawn = next != events.end() && file.texts[(*next)->name] == name;
    if (!drawn && IsCompute(action)) return InvalidArgument("has no event of {}", name);
    if (drawn) {
      const TraceEvent& event = **next++;
      if (!IsSound(event) || event.start < now - kRounding) {
        return InvalidArgument(
            "{} starts at {} us and takes {} us, after an action that ends at {}", name,
            event.start, event.duration, now);
      }
      now = std::max(now, event.start);
      spans.push_back({now, now + event.duration});
      now = spans.back().end;
    } else {
      spans.push_back({now, now});
    }
  }
  if (next == events.end()) return spans;
  return InvalidArgument("its schedule has no {} there", Quote(file.texts[(*next)->name]));
}

Result<OwnTrace> Read(const TraceFile& file) {
  PENSTOCK_TRY(const Json description, ParseStrictJson(file.own));
  PENSTOCK_TRY(const Json* const runs, MemberOf(description, "runs", kDescription));
  PENSTOCK_TRY(const Json run, LastRun(*runs));
  OwnTrace trace;
  PENSTOCK_TRY(trace.time_unit, TextMember(description, "time_unit", kDescription));
  PENSTOCK_TRY(const std::uint64_t microseconds,
               CountMember(description, "microseconds", kDescription, kMostMicroseconds));
  trace.microseconds = static_cast<double>(std::max<std::uint64_t>(1, microseconds));
  PENSTOCK_TRY(trace.step.schedule, ScheduleOf(run));
  const std::size_t ranks = trace.step.schedule.lanes.size();
  const auto events = EventsByRank(file, runs->size() - 1, ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    auto spans = SpansOf(trace.step.schedule.lanes[rank], file, events[rank]);
    if (!spans) return tl::unexpected(In(fmt::format("rank {}", rank), spans.error()));
    trace.step.timeline.spans.push_back(std::move(*spans));
  }
  return trace;
}

}  // namespace

Result<OwnTrace> ReadOwnTrace(const TraceFile& file) {
  auto trace = Read(file);
  if (trace) return trace;
  return tl::unexpected(In(file.path, trace.error()));
}

}  // namespace penstock
