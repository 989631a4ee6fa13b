#include "report/conclusions.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "explain/difference.h"
#include "report/markup.h"
#include "schedule/pairs.h"

namespace penstock {
namespace {

// Less than this part of a makespan, or of a rank's time, is not worth a sentence.
constexpr double kNoticeable = 0.01;
// A rank that computes this much longer than the median is called slow: measured ranks of equal
// stages differ by a few percent.
constexpr double kSlow = 1.05;

// "a", "a and b", "a, b and c"; clauses have ", and ".
std::string Enumerated(const std::vector<std::string>& parts, std::string_view last = " and ") {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += i + 1 == parts.size() ? last : ", ";
    text += parts[i];
  }
  return text;
}

double MakespanOf(const ReportRun& run) { return run.result.makespan; }

TimeUse UseOf(const ReportInput& input, const ReportRun& run) {
  return TimeUseOf({ScheduleOf(input, run), *run.timeline, run.explanation->bubbles});
}

// Amounts by cause, the largest first.
std::vector<std::pair<BubbleCause, double>> Sorted(const TimeByCause& times) {
  std::vector<std::pair<BubbleCause, double>> sorted;
  for (std::size_t cause = 0; cause < times.size(); ++cause) {
    sorted.emplace_back(static_cast<BubbleCause>(cause), times[cause]);
  }
  std::ranges::stable_sort(sorted, std::greater<>(),
                           [](const auto& each) { return std::abs(each.second); });
  return sorted;
}

// "Ranks are idle for 27.3% of the time: drain 13.6%, warm-up 13.6%."
std::string IdleSentence(const ReportInput& input, const ReportRun& run) {
  const double makespan = MakespanOf(run);
  double idle = 0;
  std::vector<std::string> parts;
  for (const auto& [cause, time] : Sorted(UseOf(input, run).bubbles)) {
    idle += time / makespan;
    if (time < kNoticeable * makespan) continue;
    parts.push_back(fmt::format("{} {}", NameOf(cause), FormatPercent(time / makespan)));
  }
  if (parts.empty())
    return fmt::format("Ranks are idle for only {} of the time.", FormatPercent(idle));
  return fmt::format("Ranks are idle for {} of the time: {}.", FormatPercent(idle),
                     Enumerated(parts));
}

// "Rank 2 computes for 36, 1.5 times as long as the median rank (24)."
std::optional<std::string> SlowRankSentence(const ReportInput& input, const ReportRun& run) {
  const std::vector<RankResult>& ranks = run.result.ranks;
  std::vector<double> busy;
  for (const RankResult& rank : ranks) busy.push_back(rank.busy);
  const auto slowest = std::ranges::max_element(ranks, {}, &RankResult::busy);
  // An even number of ranks has two middle ones. The faster one counts, so that one slow rank of
  // two is slow, too.
  const auto middle = busy.begin() + static_cast<std::ptrdiff_t>((busy.size() - 1) / 2);
  std::ranges::nth_element(busy, middle);
  const double median = *middle;
  if (!(median > 0) || slowest->busy < kSlow * median) return std::nullopt;
  const AmountFormat time = FormatLike(slowest->busy, input.time_unit);
  return fmt::format("Rank {} computes for {}, {} times as long as the median rank ({}).",
                     slowest - ranks.begin(), time(slowest->busy),
                     FormatNumber(slowest->busy / median, 2), time(median));
}

// What changes from one run to another: "drain vanishes, which saves 4.5", "imbalance adds 1".
std::string Changed(std::string_view cause, double before, double after, double whole,
                    const AmountFormat& time) {
  constexpr double kRounding = 1e-9;
  if (after <= kRounding * whole)
    return fmt::format("{} vanishes, which saves {}", cause, time(before));
  if (before <= kRounding * whole)
    return fmt::format("{} appears, which costs {}", cause, time(after));
  return fmt::format("{} is {} {}", cause, time(std::abs(after - before)),
                     after < before ? "shorter" : "longer");
}

std::string ChangesOf(const ReportInput& input, const ReportRun& from, const ReportRun& to) {
  const TimeUse a = UseOf(input, from), b = UseOf(input, to);
  const double whole = std::max(MakespanOf(from), MakespanOf(to));
  const AmountFormat time = FormatLike(whole, input.time_unit);
  double computed_a = 0, computed_b = 0;
  for (std::size_t op = 0; op < kOpCount; ++op) {
    computed_a += a.by_op[op];
    computed_b += b.by_op[op];
  }
  TimeByCause more{};
  for (std::size_t i = 0; i < more.size(); ++i) more[i] = b.bubbles[i] - a.bubbles[i];
  std::vector<std::string> changes;
  if (std::abs(computed_b - computed_a) >= kNoticeable * whole) {
    changes.push_back(Changed("computation", computed_a, computed_b, whole, time));
  }
  for (const auto& [cause, by] : Sorted(more)) {
    if (std::abs(by) < kNoticeable * whole) continue;
    const auto at = static_cast<std::size_t>(cause);
    changes.push_back(Changed(NameOf(cause), a.bubbles[at], b.bubbles[at], whole, time));
  }
  return changes.empty() ? "" : ". Of a rank's time, on average, " + Enumerated(changes, ", and ");
}

// What a comparison with a schedule presumes: ", if overlapped pairs of dualpipe take the longer of
// their two times, and with the weights twice on each rank".
std::string AssumptionsOf(const ReportInput& input, const ReportRun& run) {
  const Schedule& schedule = ScheduleOf(input, run);
  std::string text;
  const bool is_simulated = run.costs != nullptr && !run.messages.empty();
  if (is_simulated && run.costs->overlap.kind == OverlapRule::Kind::kMax && HasPairs(schedule)) {
    text +=
        fmt::format(", if overlapped pairs of {} take the longer of their two times", run.label);
  }
  if (schedule.placement.replicas() > 1) {
    text += fmt::format("; ranks of {} hold the weights of {} chains", run.label,
                        schedule.placement.replicas());
  }
  return text;
}

// "zb-h1 takes 28.5 instead of 33 as 1f1b (13.6% less). Of a rank's time, ..."
std::string ComparedSentence(const ReportInput& input, const ReportRun& from, const ReportRun& to) {
  const double before = MakespanOf(from), after = MakespanOf(to);
  const AmountFormat time = FormatLike(std::max(before, after), input.time_unit);
  std::string text;
  if (std::abs(after - before) < kNoticeable / 10 * before) {
    text = fmt::format("{} takes as long as {}: {}", to.label, from.label, time(after));
  } else {
    text = fmt::format("{} takes {}, {} {} than {} with {}", to.label, time(after),
                       FormatPercent(std::abs(after / before - 1)),
                       after < before ? "less" : "more", from.label, time(before));
  }
  const double held = from.result.peak_memory, holds = to.result.peak_memory;
  const bool comparable = from.memory_unit == to.memory_unit && held > 0 && holds > 0;
  if (comparable && std::abs(holds / held - 1) >= kNoticeable) {
    text += fmt::format(", and holds {} times the activations", FormatNumber(holds / held, 2));
  }
  if (to.above_limit) text += ", more memory than its limit";
  for (const ReportRun* run : {&from, &to}) text += AssumptionsOf(input, *run);
  return text + ChangesOf(input, from, to) + ".";
}

// A sentence that several runs have is said once, with their labels unless it is true of all.
void AddSlowRanks(const ReportInput& input, std::span<const ReportRun> runs,
                  std::vector<std::string>& sentences) {
  std::vector<std::pair<std::string, std::vector<std::string>>> found;  // with the runs' labels
  for (const ReportRun& run : runs) {
    const auto sentence = SlowRankSentence(input, run);
    if (!sentence) continue;
    auto same = std::ranges::find(found, *sentence, [](const auto& each) { return each.first; });
    if (same == found.end()) same = found.insert(same, {*sentence, {}});
    same->second.push_back(run.label);
  }
  for (const auto& [sentence, labels] : found) {
    const bool of_all = labels.size() == runs.size();
    sentences.push_back(of_all ? sentence : Enumerated(labels) + ": " + sentence);
  }
}

}  // namespace

std::vector<std::string> Conclusions(const ReportInput& input, std::span<const ReportRun> runs) {
  const bool explained = !runs.empty() && std::ranges::all_of(runs, [](const ReportRun& run) {
    return run.explanation.has_value() && run.timeline != nullptr && run.result.makespan > 0;
  });
  if (!explained) return {};
  std::vector<std::string> sentences;
  if (runs.size() == 1) {
    sentences.push_back(IdleSentence(input, runs[0]));
  } else if (runs.size() == 2) {
    sentences.push_back(ComparedSentence(input, runs[0], runs[1]));
  } else {
    const auto better = [](const ReportRun& a, const ReportRun& b) {
      return std::pair(a.above_limit, MakespanOf(a)) < std::pair(b.above_limit, MakespanOf(b));
    };
    const auto best = std::ranges::min_element(runs, better);
    const bool is_first = best == runs.begin();
    const ReportRun& next = *std::ranges::min_element(runs.subspan(1), better);
    sentences.push_back(fmt::format("The shortest is {}. ", best->label) +
                        (is_first ? ComparedSentence(input, *best, next)
                                  : ComparedSentence(input, runs[0], *best)));
  }
  AddSlowRanks(input, runs, sentences);
  for (const ReportRun& run : runs) {
    const bool is_new = std::ranges::find(sentences, run.reading) == sentences.end();
    if (!run.reading.empty() && is_new) sentences.push_back(run.reading);
  }
  return sentences;
}

}  // namespace penstock
