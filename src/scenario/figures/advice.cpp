#include "scenario/figures/advice.h"

#include <algorithm>
#include <limits>

#include "base/text/shell_word.h"
#include "report/table.h"
#include "scenario/command_line.h"
#include "scenario/fields.h"
#include "schedule/pairs.h"

namespace penstock {
namespace {

// Together, other schedules may have this many actions, which are simulated in a fraction of a
// second.
constexpr std::size_t kMostActions = 400'000;
constexpr double kNoticeable = 0.01;  // less is no reason to change the schedule
constexpr double kRounding = 1e-9;

// Whether a command gives all costs: some are only in files.
bool IsCommand(const Scenario& scenario) {
  return scenario.sweep.empty() && !scenario.schedules.empty() && !scenario.file_costs &&
         std::ranges::none_of(ScenarioFields(), [&](const ScenarioField& field) {
           return IsNested(field) && IsGiven(field, scenario);
         });
}

// The index of the shortest schedule that fits its memory, or of the shortest.
std::size_t BestOf(const std::vector<Simulated>& all) {
  const auto better = [](const Simulated& a, const Simulated& b) {
    return std::pair(a.above_limit, a.result.makespan) <
           std::pair(b.above_limit, b.result.makespan);
  };
  return static_cast<std::size_t>(std::ranges::min_element(all, better) - all.begin());
}

// The scenario of other schedules with the shape of this one.
Scenario ScenarioLike(Scenario scenario, const Simulated& best) {
  const Schedule& schedule = best.chosen.schedule;
  scenario.compares = true;
  scenario.ranks = schedule.ranks();
  scenario.microbatches = schedule.microbatches;
  return scenario;
}

std::optional<Simulated> Simulate(const Scenario& scenario, const Candidate& candidate) {
  auto built = BuildOne(scenario, candidate, {});
  if (!built) return std::nullopt;
  auto simulated = SimulateOne(std::move(*built), false);
  if (!simulated) return std::nullopt;
  return std::move(*simulated);
}

// Whether the other schedule trains the same, within the memory that this one has, and without more
// than the question says of a device: that it overlaps pairs, or holds weights twice.
bool IsComparable(const Simulated& other, const Simulated& best) {
  const Schedule &a = best.chosen.schedule, &b = other.chosen.schedule;
  const double limit = std::max(best.result.peak_memory, best.chosen.memory_limit.value_or(0));
  return a.weights == b.weights && a.placement.replicas() == b.placement.replicas() &&
         a.steps == b.steps && (HasPairs(a) || !HasPairs(b)) && !other.above_limit &&
         other.result.peak_memory <= limit * (1 + kRounding);
}

// "penstock simulate 1f1b zbv --ranks=4": both schedules with the scenario's options.
std::string CommandOfBoth(Scenario scenario, const Candidate& first, const Candidate& second) {
  const std::string simulate = "penstock simulate ";
  scenario.schedules = {second};
  return simulate + ShellWord(WordOf(first)) + CommandLineOf(scenario).substr(simulate.size() - 1);
}

std::optional<Advice> OtherSchedule(const Scenario& scenario, const std::vector<Simulated>& all,
                                    std::size_t best) {
  const Scenario like = ScenarioLike(scenario, all[best]);
  std::optional<Simulated> found;
  std::size_t actions = 0;
  for (const Algorithm& algorithm : Catalog()) {
    const bool is_shown = std::ranges::any_of(
        all, [&](const Simulated& each) { return each.chosen.algorithm == &algorithm; });
    if (is_shown || algorithm.supported.objective) continue;  // searches take longer
    if (actions > kMostActions) break;
    auto other = Simulate(like, {Candidate::Kind::kAlgorithm, std::string(algorithm.name)});
    if (!other) continue;
    actions += other->result.actions;
    if (!IsComparable(*other, all[best])) continue;
    if (!found || other->result.makespan < found->result.makespan) found = std::move(other);
  }
  if (!found) return std::nullopt;
  const double before = all[best].result.makespan, after = found->result.makespan;
  if (after > before * (1 - kNoticeable)) return std::nullopt;
  const AmountFormat time = FormatLike(before, all[best].chosen.time_unit);
  const bool same = found->result.peak_memory <= all[best].result.peak_memory * (1 + kRounding);
  return Advice{fmt::format("Within the {}, {} takes {}, {} less than {}",
                            same ? "same memory" : "memory limit", found->chosen.label, time(after),
                            FormatPercent(1 - after / before), all[best].chosen.label),
                CommandOfBoth(like, scenario.schedules[best],
                              {Candidate::Kind::kAlgorithm, found->chosen.label})};
}

std::optional<Advice> MoreMicrobatches(const Scenario& scenario, const Simulated& best,
                                       const Candidate& candidate) {
  if (candidate.kind != Candidate::Kind::kAlgorithm || !candidate.options.empty())
    return std::nullopt;
  Scenario twice = ScenarioLike(scenario, best);
  twice.microbatches = 2 * best.chosen.schedule.microbatches;
  twice.schedules = {candidate};
  const auto simulated = Simulate(twice, candidate);
  if (!simulated || simulated->above_limit) return std::nullopt;
  if (simulated->result.bubble > best.result.bubble - kNoticeable) return std::nullopt;
  return Advice{
      fmt::format("With {} microbatches per step instead of {}, the bubble is {} instead of {}",
                  *twice.microbatches, best.chosen.schedule.microbatches,
                  FormatPercent(simulated->result.bubble), FormatPercent(best.result.bubble)),
      CommandLineOf(twice)};
}

}  // namespace

std::optional<Advice> AdviceOf(const Scenario& scenario, const std::vector<Simulated>& all) {
  const bool simulated = std::ranges::none_of(all, &Simulated::measured);
  if (!simulated || all.size() != scenario.schedules.size() || !IsCommand(scenario)) {
    return std::nullopt;
  }
  const std::size_t best = BestOf(all);
  if (all[best].result.actions > kMostActions || !all[best].chosen.schedule.ranks()) {
    return std::nullopt;
  }
  if (auto advice = OtherSchedule(scenario, all, best)) return advice;
  return MoreMicrobatches(scenario, all[best], scenario.schedules[best]);
}

}  // namespace penstock
