#include "interop/traces/recorded_run.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "interop/measured_costs.h"
#include "interop/primus/dump.h"
#include "interop/traces/one_step.h"
#include "interop/traces/own_trace.h"
#include "interop/traces/rank_actions.h"
#include "interop/traces/trace_file.h"
#include "interop/traces/trace_rule.h"

namespace penstock {
namespace {

constexpr int kNoStep = -1;

void DivideByEvents(RankActions& rank) {
  std::vector<RecordedStep>& steps = rank.steps;
  std::ranges::sort(steps, {}, [](const RecordedStep& step) { return step.span.start; });
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].number < 0) steps[i].number = static_cast<int>(i);
  }
  for (RecordedAction& action : rank.actions) {
    action.step = kNoStep;
    for (const RecordedStep& step : steps) {
      const double start = action.span.start;
      if (start >= step.span.start && start < step.span.end) action.step = step.number;
    }
  }
}

// A forward begins the next step of its stage and microbatch; what follows is of that step.
void DivideByRepetition(RankActions& rank) {
  std::map<std::tuple<int, int, int>, int> forwards;  // by stage or chunk, and microbatch
  for (RecordedAction& action : rank.actions) {
    action.step = kNoStep;
    ForEachPart(action.action, [&](const Part& part) {
      int& count = forwards[{action.has_stage ? part.stage : -1, action.chunk, part.microbatch}];
      if (part.op == Op::kForward) ++count;
      action.step = count - 1;
    });
  }
}

void DivideByCount(RankActions& rank, std::optional<std::int64_t> forwards) {
  std::map<Op, std::int64_t> counts;
  for (RecordedAction& action : rank.actions) {
    const std::int64_t count = counts[action.action.first.op]++;
    action.step = forwards ? static_cast<int>(count / *forwards) : 0;
  }
}

// Sets the step of each action, and leaves out actions of no step: by the events that contain
// steps; without any, a step ends where an action repeats. Actions that do not name their
// microbatch are then of one step, or of `forwards` forwards per rank and step.
void DivideIntoSteps(std::vector<RankActions>& ranks, std::optional<std::int64_t> forwards) {
  const bool has_steps =
      std::ranges::all_of(ranks, [](const RankActions& rank) { return !rank.steps.empty(); });
  for (RankActions& rank : ranks) {
    if (has_steps) {
      DivideByEvents(rank);
    } else if (std::ranges::all_of(rank.actions, &RecordedAction::has_microbatch)) {
      DivideByRepetition(rank);
    } else {
      DivideByCount(rank, forwards);
    }
    std::erase_if(rank.actions, [](const RecordedAction& each) { return each.step == kNoStep; });
  }
}

// The steps that every rank has actions of, in ascending order.
std::vector<int> CommonSteps(const std::vector<RankActions>& ranks) {
  std::set<int> common;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::set<int> own;
    for (const RecordedAction& action : ranks[r].actions) {
      if (r == 0 || common.contains(action.step)) own.insert(action.step);
    }
    common = std::move(own);
  }
  return {common.begin(), common.end()};
}

// The ranks of the files in the numbering of the whole job; empty if a file does not say its own.
std::vector<int> RanksOf(const std::vector<TraceFile>& files) {
  std::vector<int> ranks;
  for (const TraceFile& file : files) {
    if (!file.rank) return {};
    ranks.push_back(*file.rank);
  }
  std::ranges::sort(ranks);
  return ranks;
}

// A pipeline is a process group, or a whole number of pipelines is the job.
bool CanBePipeline(const std::vector<int>& ranks, const TraceFile& file) {
  const int count = static_cast<int>(ranks.size());
  if (count == 1 || file.groups.empty()) return file.world_size % count == 0 && count > 1;
  return std::ranges::any_of(file.groups, [&](std::vector<int> group) {
    std::ranges::sort(group);
    return group == ranks;
  });
}

// Refuses the traces of some ranks only, as far as the files tell: one rank of several would
// otherwise be read as a pipeline of one rank.
Status RequireAllRanks(const std::vector<TraceFile>& files, const std::vector<RankActions>& ranks) {
  const TraceFile& first = files.front();
  if (first.world_size == 1 || (ranks.size() > 1 && files.size() == 1)) return {};
  const std::vector<int> recorded = RanksOf(files);
  if (!recorded.empty() && first.world_size > 1 && !CanBePipeline(recorded, first)) {
    return InvalidArgument(
        "rank{} {} of {}: not all ranks of a pipeline; give a folder with the trace of each",
        recorded.size() == 1 ? "" : "s", fmt::join(recorded, ", "), first.world_size);
  }
  if (ranks.size() > 1) return {};
  return InvalidArgument(
      "all actions are of one rank ({}); give a folder with a trace of each rank, or a rule "
      "that says what distinguishes ranks",
      ranks.front().source);
}

namespace fs = std::filesystem;

// Files of a training run (train/run/results.h).
constexpr const char* kOwnSchedule = "schedule.csv";
constexpr const char* kOwnTrace = "trace.json";

// Names that end like traces, in a folder.
std::vector<std::string> TracesIn(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code unreadable;
    if (HasTraceEnding(at->path().string()) && at->is_regular_file(unreadable)) {
      paths.push_back(at->path().string());
    }
  }
  std::ranges::sort(paths, [](const std::string& a, const std::string& b) {
    // rank2.json before rank10.json.
    return std::pair(a.size(), a) < std::pair(b.size(), b);
  });
  return paths;
}

// The subfolders, at most this far down, that hold traces.
constexpr int kMostDepth = 3;

std::vector<std::string> FoldersOfTraces(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code unreadable;
    if (at.depth() >= kMostDepth) at.disable_recursion_pending();
    if (at->is_directory(unreadable) && IsRecordedRun(at->path().string())) {
      found.push_back(at->path().string());
    }
  }
  std::ranges::sort(found);
  return found;
}

// The folder of a training run of Penstock: its other files are not traces.
bool IsOwnRun(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(fs::path(path) / kOwnSchedule, error);
}

Result<std::vector<TraceFile>> ReadTraces(const std::string& path) {
  std::error_code error;
  if (IsOwnRun(path)) {
    const fs::path trace = fs::path(path) / kOwnTrace;
    if (!fs::exists(trace, error)) {
      return NotFound("there is no {} yet: a run writes it when it ends; {} has its schedule",
                      trace.string(), (fs::path(path) / kOwnSchedule).string());
    }
    PENSTOCK_TRY(TraceFile file, ReadTraceFile(trace.string()));
    return std::vector{std::move(file)};
  }
  const bool is_folder = fs::is_directory(path, error);
  std::vector<TraceFile> files;
  for (const std::string& each : is_folder ? TracesIn(path) : std::vector<std::string>{path}) {
    PENSTOCK_TRY(TraceFile file, ReadTraceFile(each));
    files.push_back(std::move(file));
  }
  const auto has_rank = [](const TraceFile& file) { return file.rank.has_value(); };
  if (std::ranges::all_of(files, has_rank)) {
    std::ranges::stable_sort(files, {}, [](const TraceFile& file) { return *file.rank; });
  }
  return files;
}

Result<TraceRule> RuleFor(const std::vector<TraceFile>& files, const RecordedRunOptions& options) {
  if (!options.rule.empty()) return LoadTraceRule(options.rule);
  std::string names;
  for (const TraceRule& rule : BuiltInTraceRules()) {
    if (Matches(files, rule)) return rule;
    names += (names.empty() ? "" : "; ") + rule.name;
  }
  return InvalidArgument(
      "no event is an action of a pipeline; known are: {}; for others, give a rule (`trace_rule`)",
      names);
}

// "Step 2 is read, of 1 to 2 that all ranks recorded.", and what was done to the clocks.
std::string ReadingOf(int number, const std::vector<int>& steps,
                      const std::vector<double>& shifts) {
  std::string text;
  if (steps.size() > 1) {
    text = fmt::format("Step {} is read, of {} to {} that all ranks recorded.", number,
                       steps.front(), steps.back());
  }
  if (shifts.empty()) return text;
  const auto furthest =
      std::ranges::max_element(shifts, {}, [](double shift) { return std::abs(shift); });
  return text + fmt::format(
                    "{}The ranks' clocks differ: that of rank {} was set {:.3g} ms {}, by the "
                    "messages of both directions, relative to rank 0.",
                    text.empty() ? "" : " ", furthest - shifts.begin(), std::abs(*furthest) / 1e3,
                    *furthest < 0 ? "back" : "forward");
}

// The last complete step, or the requested one.
Result<OneStep> ChooseStep(const std::vector<RankActions>& ranks,
                           const RecordedRunOptions& options) {
  const std::vector<int> steps = CommonSteps(ranks);
  if (steps.empty()) return InvalidArgument("no step has actions of all {} ranks", ranks.size());
  std::vector<int> tried = {steps.rbegin(), steps.rend()};
  if (options.iteration) {
    if (std::ranges::find(steps, *options.iteration) == steps.end()) {
      return NotFound("there is no step {}; the trace has {} to {}", *options.iteration,
                      steps.front(), steps.back());
    }
    tried = {*options.iteration};
  }
  for (const int step : tried) {
    auto found = StepOf(ranks, step, options.chunks);
    if (found) found->reading = ReadingOf(step, steps, found->shifts);
    if (found || step == tried.back()) return found;
  }
  return InvalidArgument("no step is complete");
}

// Half of a full backward, so that other schedules can be priced that split it.
void SplitBackwardTimes(Costs& costs) {
  for (StageCosts& stage : costs.stages) {
    if (stage.backward_weight != 0) continue;
    stage.backward_input /= 2;
    stage.backward_weight = stage.backward_input;
  }
}

// Counts from the first start. `unit` is in microseconds.
void SetTimes(Timeline& timeline, double unit) {
  double first = std::numeric_limits<double>::infinity();
  for (const auto& spans : timeline.spans) {
    for (const Span& span : spans) first = std::min(first, span.start);
  }
  for (auto& spans : timeline.spans) {
    for (Span& span : spans) span = {(span.start - first) / unit, (span.end - first) / unit};
  }
}

Status RefuseRuleOptions(const RecordedRunOptions& options) {
  const std::pair<const char*, bool> given[] = {{"trace_rule", !options.rule.empty()},
                                                {"iteration", options.iteration.has_value()}};
  for (const auto& [name, is_given] : given) {
    if (is_given) {
      return InvalidParameter(name, "has no effect on a trace that Penstock wrote; leave it out");
    }
  }
  return {};
}

Result<OneStep> LoadStep(const std::vector<TraceFile>& files, const RecordedRunOptions& options) {
  PENSTOCK_TRY(const TraceRule rule, RuleFor(files, options));
  PENSTOCK_TRY(std::vector<RankActions> ranks, MatchEvents(files, rule));
  PENSTOCK_TRY_STATUS(RequireAllRanks(files, ranks));
  std::optional<std::int64_t> forwards;
  if (options.microbatches)
    forwards = std::int64_t{*options.microbatches} * options.chunks.value_or(1);
  DivideIntoSteps(ranks, forwards);
  return ChooseStep(ranks, options);
}

Result<RecordedRun> Load(const std::string& path, const RecordedRunOptions& options) {
  PENSTOCK_TRY(const std::vector<TraceFile> files, ReadTraces(path));
  RecordedRun run;
  OneStep step;
  double unit = 1e6;  // in microseconds
  if (files.size() == 1 && !files.front().own.empty()) {
    PENSTOCK_TRY_STATUS(RefuseRuleOptions(options));
    PENSTOCK_TRY(OwnTrace own, ReadOwnTrace(files.front()));
    step = std::move(own.step);
    run.time_unit = std::move(own.time_unit);
    unit = own.microseconds;
  } else {
    PENSTOCK_TRY(step, LoadStep(files, options));
  }
  run.schedule = std::move(step.schedule);
  run.schedule.algorithm = fs::path(path).lexically_normal().filename().string();
  run.timeline = std::move(step.timeline);
  run.reading = std::move(step.reading);
  SetTimes(run.timeline, unit);
  run.costs = MedianCosts(run.schedule, run.timeline);
  SplitBackwardTimes(run.costs);
  return run;
}

}  // namespace

Error NoTracesIn(const std::string& folder) {
  constexpr std::size_t kMostNamed = 3;
  std::vector<std::string> found = FoldersOfTraces(folder);
  if (found.empty()) {
    return {ErrorCode::kNotFound,
            fmt::format("{} is a folder without traces (.json, .json.gz), a schedule.csv of a run "
                        "or Primus's pp_rank_N.json",
                        folder)};
  }
  const std::size_t more = found.size() - std::min(found.size(), kMostNamed);
  found.resize(found.size() - more);
  return {ErrorCode::kNotFound,
          fmt::format("{} has no traces (.json, .json.gz) itself; its subfolders have: give {}{}",
                      folder, fmt::join(found, " or "),
                      more > 0 ? fmt::format(" or one of {} others", more) : "")};
}

bool IsRecordedRun(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    return IsOwnRun(path) || (!IsPrimusDump(path) && !TracesIn(path).empty());
  }
  return HasTraceEnding(path);
}

Result<RecordedRun> LoadRecordedRun(const std::string& path, const RecordedRunOptions& options) {
  auto run = Load(path, options);
  // Errors of single files name them.
  if (run || run.error().line().find(path) != std::string::npos) return run;
  if (!options.rule.empty() && run.error().line().starts_with(options.rule)) return run;
  return tl::unexpected(In(path, run.error()));
}

}  // namespace penstock
