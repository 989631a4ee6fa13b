#include "interop/traces/one_step.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/index.h"
#include "base/text/quote.h"
#include "interop/megatron_order.h"
#include "schedule/compute_times.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

struct StepInput {
  Span made;  // of the action that computes the input
  int from = 0;
  Span* read = nullptr;  // of the action that reads it
  int to = 0;
};

// Calls visit(const StepInput&) for each input of F, I and B that another rank computes.
template <class Visit>
void ForEachInput(OneStep& step, const Visit& visit) {
  const Placement& placement = step.schedule.placement;
  const ComputeTimes times(step.schedule, step.timeline);
  for (std::size_t rank = 0; rank < step.schedule.lanes.size(); ++rank) {
    for (std::size_t i = 0; i < step.schedule.lanes[rank].size(); ++i) {
      ForEachPart(step.schedule.lanes[rank][i], [&](const Part& part) {
        if (part.op == Op::kBackwardWeight) return;
        const bool forward = part.op == Op::kForward;
        const int stage = forward ? placement.previous(part.stage) : placement.next(part.stage);
        if (stage < 0 || placement.rank_of(stage) == static_cast<int>(rank)) return;
        const ValueKind kind = forward ? ValueKind::kActivation : ValueKind::kGradient;
        visit(StepInput{times.Of(kind, Index(stage), Index(part.microbatch)),
                        placement.rank_of(stage), &step.timeline.spans[rank][i],
                        static_cast<int>(rank)});
      });
    }
  }
}

// From one rank to another: the least that the second rank's clock must be set forward relative to
// the first rank's, so that every input is computed before its reader starts, or before it ends.
struct ClockBounds {
  double before_start = 0;
  double before_end = 0;
};

using BoundsOfRanks = std::map<std::pair<int, int>, ClockBounds>;

BoundsOfRanks BoundsOf(OneStep& step) {
  BoundsOfRanks bounds;
  ForEachInput(step, [&](const StepInput& input) {
    const ClockBounds now = {input.made.end - input.read->start, input.made.end - input.read->end};
    const auto [at, added] = bounds.try_emplace({input.from, input.to}, now);
    at->second.before_start = std::max(at->second.before_start, now.before_start);
    at->second.before_end = std::max(at->second.before_end, now.before_end);
  });
  return bounds;
}

// By how much to set the second clock forward.
double MiddleOf(const ClockBounds& there, const ClockBounds& back) {
  // Ranges that include waits start too early for the tighter bounds.
  const bool tight = there.before_start <= -back.before_start;
  return tight ? (there.before_start - back.before_start) / 2
               : (there.before_end - back.before_end) / 2;
}

// Shifts the times of ranks if some action ends before its input is computed, which only happens
// where clocks differ. Messages of both directions between two ranks bound the difference of their
// clocks from below and above; the middle is taken, as NTP does.
void AlignClocks(OneStep& step) {
  constexpr double kMicroseconds = 1;
  const BoundsOfRanks bounds = BoundsOf(step);
  if (std::ranges::none_of(
          bounds, [](const auto& entry) { return entry.second.before_end > kMicroseconds; })) {
    return;
  }
  const std::size_t ranks = step.timeline.spans.size();
  std::vector<std::optional<double>> shift(ranks);
  std::vector<int> reached = {0};
  shift[0] = 0;
  for (std::size_t next = 0; next < reached.size(); ++next) {
    const int from = reached[next];
    for (int to = 0; to < static_cast<int>(ranks); ++to) {
      const auto there = bounds.find({from, to});
      const auto back = bounds.find({to, from});
      if (shift[Index(to)] || there == bounds.end() || back == bounds.end()) continue;
      shift[Index(to)] = *shift[Index(from)] + MiddleOf(there->second, back->second);
      reached.push_back(to);
    }
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    step.shifts.push_back(shift[rank].value_or(0));
    for (Span& span : step.timeline.spans[rank]) {
      span.start += step.shifts.back();
      span.end += step.shifts.back();
    }
  }
}

// One rank's actions of the step. Until the placement is known, the stage of an action that names
// none is its chunk.
struct StepLane {
  std::string source;
  std::vector<RecordedAction> actions;
};

// Numbers the actions of one kind that do not name their microbatch.
Status NumberActions(StepLane& lane, Op op, int ranks, int chunks) {
  std::vector<RecordedAction*> unnumbered;
  for (RecordedAction& action : lane.actions) {
    if (action.action.first.op == op && !action.has_microbatch) unnumbered.push_back(&action);
  }
  if (unnumbered.empty()) return {};
  const RecordedAction& first = *unnumbered.front();
  if (first.has_stage || first.chunk >= 0) {
    std::map<int, int> next;  // by stage or chunk
    for (RecordedAction* action : unnumbered) {
      Part& part = action->action.first;
      part.microbatch = next[action->has_stage ? part.stage : action->chunk]++;
    }
    return {};
  }
  const int count = static_cast<int>(unnumbered.size());
  if (count % chunks != 0) {
    return InvalidParameter("chunks", "{}: does not divide the {} events {} of {}", chunks, count,
                            Quote(first.name), lane.source);
  }
  const auto order = MegatronOrder(ranks, chunks, count / chunks, op != Op::kForward);
  for (std::size_t i = 0; i < unnumbered.size(); ++i) {
    unnumbered[i]->chunk = order[i].chunk;
    unnumbered[i]->action.first.microbatch = order[i].microbatch;
  }
  return {};
}

// A rank's stages in ascending order where it is not known which of all stages they are.
Status SetChunks(StepLane& lane, int chunks) {
  for (RecordedAction& action : lane.actions) {
    if (action.has_stage) continue;
    if (action.chunk < 0) action.chunk = 0;
    if (action.chunk >= chunks) {
      return InvalidParameter("chunks", "{}: must be more than {}, the chunk of {} in {}", chunks,
                              action.chunk, Quote(action.name), lane.source);
    }
    action.action.first.stage = static_cast<std::uint16_t>(action.chunk);
  }
  return {};
}

// Clips actions that overlap by no more than clocks are inexact.
Status SeparateActions(StepLane& lane) {
  constexpr double kLargestShare = 0.01;
  constexpr double kMicroseconds = 2;
  for (std::size_t i = 1; i < lane.actions.size(); ++i) {
    Span& before = lane.actions[i - 1].span;
    const Span& after = lane.actions[i].span;
    const double overlap = before.end - after.start;
    if (overlap <= 0) continue;
    const double shorter = std::min(before.end - before.start, after.end - after.start);
    if (overlap > std::max(kMicroseconds, kLargestShare * shorter)) {
      return InvalidArgument(
          "{}: {} at {} us starts before {} at {} us ends, and a rank computes one action at a "
          "time; let the rule match only one of nested ranges, or of one category",
          lane.source, Quote(lane.actions[i].name), after.start, Quote(lane.actions[i - 1].name),
          before.start);
    }
    before.end = std::max(before.start, after.start);
  }
  return {};
}

// Requires that all or no actions name their stage.
Result<bool> NamesStages(const std::vector<StepLane>& lanes) {
  const RecordedAction& first = lanes.front().actions.front();
  for (const StepLane& lane : lanes) {
    for (const RecordedAction& action : lane.actions) {
      if (action.has_stage == first.has_stage) continue;
      return InvalidArgument("{} names its stage and {} does not; change the rule",
                             Quote(action.has_stage ? action.name : first.name),
                             Quote(action.has_stage ? first.name : action.name));
    }
  }
  return first.has_stage;
}

Result<Placement> PlacementOfEvents(const std::vector<StepLane>& lanes) {
  std::map<int, std::pair<int, std::string>> rank_of;  // with the name of an event
  for (std::size_t rank = 0; rank < lanes.size(); ++rank) {
    for (const RecordedAction& action : lanes[rank].actions) {
      const int stage = action.action.first.stage;
      const auto [at, added] = rank_of.try_emplace(stage, static_cast<int>(rank), action.name);
      if (at->second.first == static_cast<int>(rank)) continue;
      return InvalidArgument(
          "stage {} runs on {} ({}) and on {} ({}); give the traces of one pipeline, without its "
          "data-parallel replicas",
          stage, lanes[Index(at->second.first)].source, Quote(at->second.second),
          lanes[rank].source, Quote(action.name));
    }
  }
  std::vector<int> ranks;
  for (const auto& [stage, rank] : rank_of) {
    if (stage != static_cast<int>(ranks.size())) {
      return InvalidArgument("stage {} has no event; give the traces of all ranks", ranks.size());
    }
    ranks.push_back(rank.first);
  }
  return Placement::FromRanks(std::move(ranks), static_cast<int>(lanes.size()));
}

OneStep MakeStep(const std::vector<StepLane>& lanes, Placement placement, bool names_stages,
                 int microbatches) {
  OneStep step;
  step.schedule.microbatches = microbatches;
  for (std::size_t rank = 0; rank < lanes.size(); ++rank) {
    const std::vector<int>& stages = placement.stages_of(static_cast<int>(rank));
    Lane& lane = step.schedule.lanes.emplace_back();
    std::vector<Span>& spans = step.timeline.spans.emplace_back();
    for (const RecordedAction& recorded : lanes[rank].actions) {
      Action action = recorded.action;
      if (!names_stages) {
        action.first.stage = static_cast<std::uint16_t>(stages[Index(recorded.chunk)]);
      }
      lane.push_back(action);
      spans.push_back(recorded.span);
    }
  }
  step.schedule.placement = std::move(placement);
  return step;
}

// Refuses a step in which a stage lacks a forward or backward of a microbatch, or runs it twice.
// A full backward whose W is separate becomes an I.
Status CompleteStep(Schedule& schedule, int step) {
  const auto microbatches = Index(schedule.microbatches);
  std::vector<std::array<int, kOpCount>> counts(Index(schedule.stages()) * microbatches);
  const auto of = [&](const Part& part) -> std::array<int, kOpCount>& {
    return counts[part.stage * microbatches + Index(part.microbatch)];
  };
  for (const Lane& lane : schedule.lanes) {
    for (const Action& action : lane) {
      ForEachPart(action, [&](const Part& part) { ++of(part)[Index(part.op)]; });
    }
  }
  for (Lane& lane : schedule.lanes) {
    for (Action& action : lane) {
      for (Part* part : {&action.first, &action.second}) {
        if (part->op != Op::kBackward || of(*part)[Index(Op::kBackwardWeight)] == 0) continue;
        part->op = Op::kBackwardInput;
      }
    }
  }
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto& count = counts[i];
    const int backwards = count[Index(Op::kBackward)] + count[Index(Op::kBackwardInput)];
    const int forwards = count[Index(Op::kForward)];
    if (forwards == 1 && backwards == 1) continue;
    const bool forward = forwards != 1;
    return InvalidArgument(
        "step {}: {} has {} events, not one; choose another iteration or number of chunks, or give "
        "all traces of one pipeline",
        step,
        ToText(MakeAction(forward ? Op::kForward : Op::kBackward,
                          static_cast<int>(i / microbatches), static_cast<int>(i % microbatches))),
        forward ? forwards : backwards);
  }
  return {};
}

int CountLateInputs(OneStep& step) {
  int late = 0;
  ForEachInput(step,
               [&](const StepInput& input) { late += input.made.end > input.read->end ? 1 : 0; });
  return late;
}

// An action whose range begins before its input is computed waits inside of the range.
void StartAfterInputs(OneStep& step) {
  ForEachInput(step, [](const StepInput& input) {
    Span& read = *input.read;
    if (input.made.end < read.end) read.start = std::max(read.start, input.made.end);
  });
}

int MicrobatchesOf(const std::vector<StepLane>& lanes) {
  int most = 0;
  for (const StepLane& lane : lanes) {
    for (const RecordedAction& action : lane.actions) {
      ForEachPart(action.action,
                  [&](const Part& part) { most = std::max(most, part.microbatch + 1); });
    }
  }
  return most;
}

Result<std::vector<StepLane>> LanesOf(const std::vector<RankActions>& ranks, int step, int chunks) {
  std::vector<StepLane> lanes;
  for (const RankActions& rank : ranks) {
    StepLane& lane = lanes.emplace_back(StepLane{rank.source, {}});
    for (const RecordedAction& action : rank.actions) {
      if (action.step == step) lane.actions.push_back(action);
    }
    for (const Op op : {Op::kForward, Op::kBackward, Op::kBackwardInput, Op::kBackwardWeight}) {
      PENSTOCK_TRY_STATUS(NumberActions(lane, op, static_cast<int>(ranks.size()), chunks));
    }
    PENSTOCK_TRY_STATUS(SetChunks(lane, chunks));
    PENSTOCK_TRY_STATUS(SeparateActions(lane));
  }
  return lanes;
}

}  // namespace

Result<OneStep> StepOf(const std::vector<RankActions>& ranks, int step, std::optional<int> chunks) {
  const int count = static_cast<int>(ranks.size());
  if (chunks.value_or(1) > kMaxStages / count) {
    return InvalidArgument("{} ranks x {} chunks: at most {} stages", count, *chunks, kMaxStages);
  }
  PENSTOCK_TRY(const std::vector<StepLane> lanes, LanesOf(ranks, step, chunks.value_or(1)));
  PENSTOCK_TRY(const bool names_stages, NamesStages(lanes));
  Placement placement = Placement::Looped(count, chunks.value_or(1));
  if (names_stages) {
    PENSTOCK_TRY(placement, PlacementOfEvents(lanes));
  }
  const int microbatches = MicrobatchesOf(lanes);
  std::size_t actions = 0;
  for (const StepLane& lane : lanes) actions += 2 * lane.actions.size();
  if (Index(placement.stages()) * Index(microbatches) > actions) {
    return InvalidArgument("step {}: {} stages and {} microbatches have only {} events", step,
                           placement.stages(), microbatches, actions / 2);
  }
  OneStep found = MakeStep(lanes, placement, names_stages, microbatches);
  PENSTOCK_TRY_STATUS(CompleteStep(found.schedule, step));
  AlignClocks(found);
  if (!names_stages && chunks.value_or(1) > 1) {
    OneStep zigzag = MakeStep(lanes, Placement::Zigzag(count, *chunks), names_stages, microbatches);
    PENSTOCK_TRY_STATUS(CompleteStep(zigzag.schedule, step));
    AlignClocks(zigzag);
    if (CountLateInputs(zigzag) < CountLateInputs(found)) found = std::move(zigzag);
  }
  StartAfterInputs(found);
  return found;
}

}  // namespace penstock
