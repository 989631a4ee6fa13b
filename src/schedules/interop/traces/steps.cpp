#include "interop/traces/steps.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

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

}  // namespace

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

}  // namespace penstock
