#include "schedule/search/patterns/pattern_sampler.h"

#include <algorithm>
#include <cmath>

#include "schedule/search/patterns/repeated_slots.h"

namespace penstock {
namespace {

double BusiestWork(const Problem& problem) {
  double most = 0;
  for (int rank = 0; rank < problem.placement.ranks(); ++rank) {
    double work = 0;
    for (const int stage : problem.placement.stages_of(rank)) {
      const StageCosts& cost = problem.costs.stages[stage];
      work += TimeOfMicrobatch(cost, problem.split);
    }
    most = std::max(most, work);
  }
  return most;
}

}  // namespace

PatternSampler::PatternSampler(const Problem& problem)
    : problem_(problem), period_(BusiestWork(problem)) {}

PeriodPattern PatternSampler::Draw() {
  drawn_ = praised_ && dice_.Below(2) == 0 ? LikePraised() : DrawGait();
  if (drawn_.in_slots) {
    PeriodPattern pattern(problem_.placement.stages());
    if (InSlots(drawn_, pattern)) return pattern;
    drawn_.in_slots = false;
  }
  return InTimes(drawn_);
}

void PatternSampler::Accepted() { stretch_ = std::max(1.0, stretch_ * 0.9); }
void PatternSampler::Rejected() { stretch_ *= 1.005; }

PatternSampler::Gait PatternSampler::DrawGait() {
  Gait gait = {};
  for (Paces& paces : gait.paces) {
    for (double& pace : paces.forward) pace = DrawPace();
    for (double& pace : paces.backward) pace = DrawPace();
  }
  const int ranks = problem_.placement.ranks();
  gait.change = dice_.Below(2) == 0 ? ranks : dice_.Below(ranks);
  gait.turn = DrawPause(3);
  gait.turn_back = DrawPause(3);
  gait.last = DrawPause(2);
  gait.weight_lag = DrawPause(2);
  gait.joined = !problem_.split || dice_.Below(2) == 0;
  gait.stumble = dice_.Below(2) == 0 ? 0 : 2 + dice_.Below(8);
  gait.in_slots = !problem_.split || dice_.Below(2) == 0;
  if (dice_.Below(2) == 0) KeepInStep(gait);
  return gait;
}

// Sets the same pace down the ranks in either direction, and no pauses up. A microbatch that is
// kept alive longer on one chunk of a rank is then kept alive for a shorter time on the other, and
// all ranks need the same memory.
void PatternSampler::KeepInStep(Gait& gait) {
  for (Paces& paces : gait.paces) {
    paces.forward[0] = paces.backward[1] = 1 + dice_.Below(5);
    paces.forward[1] = paces.backward[0] = 1;
  }
  gait.stumble = 0;
}

// Returns the praised gait with one trait drawn again.
PatternSampler::Gait PatternSampler::LikePraised() {
  Gait gait = *praised_;
  const Gait fresh = DrawGait();
  const int side = dice_.Below(2), chunk = dice_.Below(2);
  switch (dice_.Below(8)) {
    case 0:
      gait.paces[side].forward[chunk] = fresh.paces[side].forward[chunk];
      break;
    case 1:
      gait.paces[side].backward[chunk] = fresh.paces[side].backward[chunk];
      break;
    case 2:
      gait.change = fresh.change;
      break;
    case 3:
      gait.turn = fresh.turn;
      break;
    case 4:
      gait.turn_back = fresh.turn_back;
      break;
    case 5:
      gait.last = fresh.last;
      break;
    case 6:
      gait.weight_lag = fresh.weight_lag;
      break;
    default:
      gait.stumble = fresh.stumble;
  }
  return gait;
}

double PatternSampler::DrawPace() {
  switch (dice_.Below(5)) {
    case 0:
      return dice_.Between(1, 3);
    case 1:
      return 1 + dice_.Below(5);
    default:
      return 1;
  }
}

double PatternSampler::DrawPause(int one_in) {
  return dice_.Below(one_in) == 0 ? dice_.Between(0, 1) : 0;
}

double PatternSampler::ForwardPace(const Gait& gait, int stage) const {
  const bool changed = problem_.placement.rank_of(stage) >= gait.change;
  return gait.paces[changed ? 1 : 0].forward[ChunkParity(stage)];
}

double PatternSampler::BackwardPace(const Gait& gait, int stage) const {
  const bool changed = problem_.placement.rank_of(stage) >= gait.change;
  return gait.paces[changed ? 1 : 0].backward[ChunkParity(stage)];
}

bool PatternSampler::IsTurn(int from, int to) const {
  return problem_.placement.rank_of(from) == problem_.placement.rank_of(to);
}

PeriodPattern PatternSampler::InTimes(const Gait& gait) const {
  const int stages = problem_.placement.stages();
  PeriodPattern pattern(stages);
  pattern.period = period_ * stretch_;
  double time = 0;
  for (int s = 0; s < stages; ++s) {
    const StageCosts& cost = problem_.costs.stages[s];
    pattern.forward[s] = time;
    if (s + 1 == stages || IsTurn(s, s + 1)) {
      time += cost.forward + (s + 1 == stages ? gait.last : gait.turn) * period_;
    } else {
      time += ForwardPace(gait, s) * (cost.forward + problem_.costs.comm);
    }
  }
  for (int s = stages - 1; s >= 0; --s) {
    const StageCosts& cost = problem_.costs.stages[s];
    const double duration = TimeOfGradient(cost, problem_.split);
    pattern.backward[s] = time;
    pattern.weight[s] = time + duration + gait.weight_lag * period_;
    if (s > 0 && IsTurn(s, s - 1)) {
      time += duration + gait.turn_back * period_;
    } else {
      time += BackwardPace(gait, s) * (duration + problem_.costs.comm);
    }
  }
  return pattern;
}

// Returns false if the remaining slots do not fit.
bool PatternSampler::InSlots(const Gait& gait, PeriodPattern& pattern) {
  const Placement& placement = problem_.placement;
  const int stages = placement.stages(), chunks = placement.chunks();
  const int slots = 3 * chunks;
  const double slot_time = period_ / slots;
  pattern.period = period_;
  std::vector<RepeatedSlots> ranks(placement.ranks(),
                                   RepeatedSlots(slots, gait.joined ? chunks : 0));
  const auto pause = [&](double periods) { return static_cast<int>(periods * slots); };
  const auto step = [&](double pace) {
    const bool stumbles = gait.stumble > 0 && dice_.Below(gait.stumble) == 0;
    return static_cast<int>(pace) - 1 + (stumbles ? 1 + dice_.Below(2) : 0);
  };
  int earliest = 0;
  for (int s = 0; s < stages; ++s) {
    const int slot = ranks[placement.rank_of(s)].Take(earliest, false);
    if (slot < 0) return false;
    pattern.forward[s] = slot * slot_time;
    earliest = slot + 1;
    if (s + 1 == stages)
      earliest += pause(gait.last);
    else if (IsTurn(s, s + 1))
      earliest += pause(gait.turn);
    else
      earliest += step(ForwardPace(gait, s));
  }
  for (int s = stages - 1; s >= 0; --s) {
    RepeatedSlots& rank = ranks[placement.rank_of(s)];
    const int slot = rank.Take(earliest, gait.joined);
    if (slot < 0) return false;
    pattern.backward[s] = slot * slot_time;
    pattern.weight[s] = (slot + 1) * slot_time;
    earliest = slot + (problem_.split ? 1 : 2);
    if (s > 0 && IsTurn(s, s - 1))
      earliest += pause(gait.turn_back);
    else
      earliest += step(BackwardPace(gait, s));
  }
  for (int s = stages - 1; s >= 0 && !gait.joined; --s) {
    RepeatedSlots& rank = ranks[placement.rank_of(s)];
    const int after = static_cast<int>(std::lround(pattern.backward[s] / slot_time));
    const int slot = rank.Take(after + 1 + pause(gait.weight_lag), false);
    pattern.weight[s] = slot * slot_time;
  }
  return true;
}

}  // namespace penstock
