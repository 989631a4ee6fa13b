#include "schedule/search/patterns/pattern_sampler.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace penstock {
namespace {

// The slots of a rank in one period, which repeats for every microbatch. Finds slots for an action
// such that they are free for every microbatch.
class RepeatedSlots {
 public:
  // `slots` in a period, which must finally have room for `long_actions` pairs of adjacent slots.
  RepeatedSlots(int slots, int long_actions) : taken_(slots), long_actions_(long_actions) {}

  // Takes the first slot from `earliest` on (in any period) for an action of one slot, or the first
  // pair for one of the long actions, and returns it. Returns -1 if none leaves room for the
  // remaining long actions.
  int Take(int earliest, bool is_long) {
    const int slots = static_cast<int>(taken_.size());
    for (int slot = earliest; slot < earliest + slots; ++slot) {
      if (IsTaken(slot) || (is_long && IsTaken(slot + 1))) continue;
      Set(slot, is_long, true);
      if (RoomForLong() >= long_actions_ - (is_long ? 1 : 0)) {
        long_actions_ -= is_long ? 1 : 0;
        return slot;
      }
      Set(slot, is_long, false);
    }
    return -1;
  }

 private:
  std::size_t Index(int slot) const { return static_cast<std::size_t>(slot) % taken_.size(); }
  bool IsTaken(int slot) const { return taken_[Index(slot)] != 0; }
  void Set(int slot, bool is_long, bool taken) {
    taken_[Index(slot)] = taken ? 1 : 0;
    if (is_long) taken_[Index(slot + 1)] = taken ? 1 : 0;
  }

  // How many long actions still fit: half of each run of free slots, with the period as a circle.
  int RoomForLong() const {
    const int slots = static_cast<int>(taken_.size());
    int begin = 0;
    while (begin < slots && !IsTaken(begin)) ++begin;
    if (begin == slots) return slots / 2;
    int room = 0, run = 0;
    for (int slot = begin; slot <= begin + slots; ++slot) {
      if (!IsTaken(slot)) {
        ++run;
      } else {
        room += run / 2;
        run = 0;
      }
    }
    return room;
  }

  std::vector<std::uint8_t> taken_;
  int long_actions_;
};

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
  drawn_ = best_shape_ && rng_.Below(2) == 0 ? LikeBest() : DrawShape();
  if (drawn_.in_slots) {
    PeriodPattern pattern(problem_.placement.stages());
    if (InSlots(drawn_, pattern)) return pattern;
    drawn_.in_slots = false;
  }
  return InTimes(drawn_);
}

void PatternSampler::Accepted() { stretch_ = std::max(1.0, stretch_ * 0.9); }
void PatternSampler::Rejected() { stretch_ *= 1.005; }

PatternSampler::PatternShape PatternSampler::DrawShape() {
  PatternShape shape = {};
  for (Paces& paces : shape.paces) {
    for (double& pace : paces.forward) pace = DrawPace();
    for (double& pace : paces.backward) pace = DrawPace();
  }
  const int ranks = problem_.placement.ranks();
  shape.change = rng_.Below(2) == 0 ? ranks : rng_.Below(ranks);
  shape.turn = DrawPause(3);
  shape.turn_back = DrawPause(3);
  shape.last = DrawPause(2);
  shape.weight_lag = DrawPause(2);
  shape.joined = !problem_.split || rng_.Below(2) == 0;
  shape.hiccup_period = rng_.Below(2) == 0 ? 0 : 2 + rng_.Below(8);
  shape.in_slots = !problem_.split || rng_.Below(2) == 0;
  if (rng_.Below(2) == 0) AlignToSlots(shape);
  return shape;
}

// Sets the same pace down the ranks in either direction, and no pauses up. A microbatch that is
// kept alive longer on one chunk of a rank is then kept alive for a shorter time on the other, and
// all ranks need the same memory.
void PatternSampler::AlignToSlots(PatternShape& shape) {
  for (Paces& paces : shape.paces) {
    paces.forward[0] = paces.backward[1] = 1 + rng_.Below(5);
    paces.forward[1] = paces.backward[0] = 1;
  }
  shape.hiccup_period = 0;
}

// Returns the best shape with one trait drawn again.
PatternSampler::PatternShape PatternSampler::LikeBest() {
  PatternShape shape = *best_shape_;
  const PatternShape fresh = DrawShape();
  const int side = rng_.Below(2), chunk = rng_.Below(2);
  switch (rng_.Below(8)) {
    case 0:
      shape.paces[side].forward[chunk] = fresh.paces[side].forward[chunk];
      break;
    case 1:
      shape.paces[side].backward[chunk] = fresh.paces[side].backward[chunk];
      break;
    case 2:
      shape.change = fresh.change;
      break;
    case 3:
      shape.turn = fresh.turn;
      break;
    case 4:
      shape.turn_back = fresh.turn_back;
      break;
    case 5:
      shape.last = fresh.last;
      break;
    case 6:
      shape.weight_lag = fresh.weight_lag;
      break;
    default:
      shape.hiccup_period = fresh.hiccup_period;
  }
  return shape;
}

double PatternSampler::DrawPace() {
  switch (rng_.Below(5)) {
    case 0:
      return rng_.Between(1, 3);
    case 1:
      return 1 + rng_.Below(5);
    default:
      return 1;
  }
}

double PatternSampler::DrawPause(int one_in) {
  return rng_.Below(one_in) == 0 ? rng_.Between(0, 1) : 0;
}

double PatternSampler::ForwardPace(const PatternShape& shape, int stage) const {
  const bool changed = problem_.placement.rank_of(stage) >= shape.change;
  return shape.paces[changed ? 1 : 0].forward[ChunkParity(stage)];
}

double PatternSampler::BackwardPace(const PatternShape& shape, int stage) const {
  const bool changed = problem_.placement.rank_of(stage) >= shape.change;
  return shape.paces[changed ? 1 : 0].backward[ChunkParity(stage)];
}

bool PatternSampler::IsTurn(int from, int to) const {
  return problem_.placement.rank_of(from) == problem_.placement.rank_of(to);
}

PeriodPattern PatternSampler::InTimes(const PatternShape& shape) const {
  const int stages = problem_.placement.stages();
  PeriodPattern pattern(stages);
  pattern.period = period_ * stretch_;
  double time = 0;
  for (int s = 0; s < stages; ++s) {
    const StageCosts& cost = problem_.costs.stages[s];
    pattern.forward[s] = time;
    if (s + 1 == stages || IsTurn(s, s + 1)) {
      time += cost.forward + (s + 1 == stages ? shape.last : shape.turn) * period_;
    } else {
      time += ForwardPace(shape, s) * (cost.forward + CommBetween(problem_, s, s + 1));
    }
  }
  for (int s = stages - 1; s >= 0; --s) {
    const StageCosts& cost = problem_.costs.stages[s];
    const double duration = TimeOfGradient(cost, problem_.split);
    pattern.backward[s] = time;
    pattern.weight[s] = time + duration + shape.weight_lag * period_;
    if (s > 0 && IsTurn(s, s - 1)) {
      time += duration + shape.turn_back * period_;
    } else {
      time += BackwardPace(shape, s) * (duration + CommBetween(problem_, s, s - 1));
    }
  }
  return pattern;
}

// Returns false if the remaining slots do not fit.
bool PatternSampler::InSlots(const PatternShape& shape, PeriodPattern& pattern) {
  const Placement& placement = problem_.placement;
  const int stages = placement.stages(), chunks = placement.chunks();
  const int slots = 3 * chunks;
  const double slot_time = period_ / slots;
  pattern.period = period_;
  std::vector<RepeatedSlots> ranks(placement.ranks(),
                                   RepeatedSlots(slots, shape.joined ? chunks : 0));
  const auto pause = [&](double periods) { return static_cast<int>(periods * slots); };
  const auto step = [&](double pace) {
    const bool has_hiccup = shape.hiccup_period > 0 && rng_.Below(shape.hiccup_period) == 0;
    return static_cast<int>(pace) - 1 + (has_hiccup ? 1 + rng_.Below(2) : 0);
  };
  int earliest = 0;
  for (int s = 0; s < stages; ++s) {
    const int slot = ranks[placement.rank_of(s)].Take(earliest, false);
    if (slot < 0) return false;
    pattern.forward[s] = slot * slot_time;
    earliest = slot + 1;
    if (s + 1 == stages)
      earliest += pause(shape.last);
    else if (IsTurn(s, s + 1))
      earliest += pause(shape.turn);
    else
      earliest += step(ForwardPace(shape, s));
  }
  for (int s = stages - 1; s >= 0; --s) {
    RepeatedSlots& rank = ranks[placement.rank_of(s)];
    const int slot = rank.Take(earliest, shape.joined);
    if (slot < 0) return false;
    pattern.backward[s] = slot * slot_time;
    pattern.weight[s] = (slot + 1) * slot_time;
    earliest = slot + (problem_.split ? 1 : 2);
    if (s > 0 && IsTurn(s, s - 1))
      earliest += pause(shape.turn_back);
    else
      earliest += step(BackwardPace(shape, s));
  }
  for (int s = stages - 1; s >= 0 && !shape.joined; --s) {
    RepeatedSlots& rank = ranks[placement.rank_of(s)];
    const int after = static_cast<int>(std::lround(pattern.backward[s] / slot_time));
    const int slot = rank.Take(after + 1 + pause(shape.weight_lag), false);
    pattern.weight[s] = slot * slot_time;
  }
  return true;
}

}  // namespace penstock
