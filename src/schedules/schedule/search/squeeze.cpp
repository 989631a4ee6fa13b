#include "schedule/search/squeeze.h"

#include <algorithm>
#include <bit>

#include "base/index.h"
#include "schedule/reserve.h"

namespace penstock {

Squeezer::Squeezer(const Problem& problem) : problem_(problem) {
  const Placement& placement = problem.placement;
  stages_.resize(placement.stages());
  ranks_.resize(placement.ranks());
  has_run_.resize(ranks_.size());
  out_.resize(ranks_.size());
  double total = 0;
  for (int s = 0; s < placement.stages(); ++s) {
    const StageCosts& cost = problem.costs.stages[s];
    Stage& stage = stages_[s];
    stage.rank = placement.rank_of(s);
    // If a rank has more chunks than there are bits, the last ones share a bit that is never set.
    std::uint64_t& bits = ranks_[stage.rank].all_bits;
    const int chunk = std::popcount(bits) / kKinds;
    const bool has_bits = chunk < kMostBits / kKinds;
    stage.first_bit = has_bits ? std::uint64_t{1} << (chunk * kKinds) : 0;
    bits |= has_bits ? stage.first_bit * ((1 << kKinds) - 1) : std::uint64_t{1} << kMostBits;
    stage.is_first = placement.previous(s) < 0;
    stage.is_last = placement.next(s) < 0;
    stage.latency_before = CommBetween(problem, placement.previous(s), s);
    stage.latency_after = CommBetween(problem, s, placement.next(s));
    stage.duration[kF] = cost.forward;
    stage.duration[kI] = TimeOfGradient(cost, problem.split);
    stage.duration[kW] = cost.backward_weight;
    stage.activation = cost.activation;
    stage.freed_by_w = problem.split ? cost.activation_after_i : 0;
    stage.freed_by_i = cost.activation - stage.freed_by_w;
    total += TimeOfMicrobatch(cost, problem.split) + problem.costs.comm;
  }
  slack_ = kRounding * total * problem.indices;
  memory_limit_ = problem.memory_limit * (1 + kRounding);
}

double Squeezer::Run(const std::vector<Lane>& lanes, const SqueezeOptions& options) {
  Reset(lanes, options);
  if (options.by_insertion) {
    RunByInsertion();
  } else if (options.window == 1 && !from_end_) {
    RunInOrder();
  } else {
    RunByEvents();
  }
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if (out_[r].size() < lanes[r].size()) return kNever;
    longest_span_ = std::max(longest_span_, SpanOf(out_[r]));
    if (from_end_) std::reverse(out_[r].begin(), out_[r].end());
  }
  return makespan_;
}

// From the first start to the last end, in the direction of the run.
double Squeezer::SpanOf(const Lane& lane) const {
  if (lane.empty()) return 0;
  const Part& first = lane.front().first;
  const double start = EndOf(first) - stages_[first.stage].duration[KindOf(first.op)];
  return EndOf(lane.back().first) - start;
}

// Without overtaking the times do not depend on the order in which ranks are visited, so each rank
// continues as long as the inputs of its next action are known.
void Squeezer::RunInOrder() {
  std::vector<int> awake;
  for (std::size_t r = ranks_.size(); r-- > 0;) {
    awake.push_back(static_cast<int>(r));
    ranks_[r].busy = true;  // in `awake`, or running
  }
  const auto wake = [&](std::size_t stage) {
    Rank& rank = ranks_[stages_[stage].rank];
    if (!rank.busy) awake.push_back(stages_[stage].rank);
    rank.busy = true;
  };
  const std::size_t indices = problem_.indices;
  while (!awake.empty()) {
    const std::size_t r = awake.back();
    awake.pop_back();
    Rank& rank = ranks_[r];
    const Lane& lane = (*in_)[r];
    for (; rank.head < lane.size(); ++rank.head) {
      const Part& part = lane[rank.head].first;
      const double arrival = Arrival(part);
      if (arrival == kNever) break;
      const Stage& stage = stages_[part.stage];
      const Kind kind = KindOf(part.op);
      rank.end = std::max(rank.end, arrival) + stage.duration[kind];
      rank.held += stage.taken[kind];
      peak_memory_ = std::max(peak_memory_, rank.held);
      rank.held -= stage.given[kind];
      ends_[kind][part.stage * indices + Index(part.microbatch)] = rank.end;
      if (kind == kF && !stage.is_last) wake(part.stage + 1U);
      if (kind == kI && !stage.is_first) wake(part.stage - 1U);
    }
    rank.busy = false;
  }
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const Lane& lane = (*in_)[r];
    makespan_ = std::max(makespan_, ranks_[r].end);
    out_[r].assign(lane.begin(), lane.begin() + static_cast<std::ptrdiff_t>(ranks_[r].head));
  }
}

void Squeezer::RunByEvents() {
  for (std::size_t r = 0; r < ranks_.size(); ++r) events_.Set(static_cast<int>(r), 0);
  for (int rank = events_.Pop(); rank >= 0; rank = events_.Pop()) {
    const double now = events_.time_of(rank);
    ranks_[rank].busy = false;
    const Choice choice = Choose(rank, now);
    if (choice.arrival == kNever) {
      events_.Set(rank, choice.next_arrival);
      continue;
    }
    const Part& part = At(rank, choice.position).first;
    const double duration = stages_[part.stage].duration[KindOf(part.op)];
    if (choice.next_arrival < now + options_.patience * duration - slack_) {
      events_.Set(rank, choice.next_arrival);
    } else {
      Start(rank, choice, now);
    }
  }
}

void Squeezer::Reset(const std::vector<Lane>& lanes, const SqueezeOptions& options) {
  in_ = &lanes;
  options_ = options;
  from_end_ = options.direction == SqueezeOptions::Direction::kFromEnd;
  makespan_ = 0;
  longest_span_ = 0;
  peak_memory_ = 0;
  entering_ = problem_.indices * problem_.placement.replicas();
  for (auto& ends : ends_) {
    ReserveLong(ends, stages_.size() * Index(problem_.indices));
    ends.assign(stages_.size() * Index(problem_.indices), kNever);
  }
  for (Stage& stage : stages_) {
    const double at_start[] = {stage.activation, 0, 0};
    const double at_end[] = {0, stage.freed_by_i, stage.freed_by_w};
    std::copy_n(from_end_ ? at_end : at_start, kKinds, stage.taken);
    std::copy_n(from_end_ ? at_start : at_end, kKinds, stage.given);
  }
  events_.Reset(static_cast<int>(ranks_.size()));
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    rank = {.all_bits = rank.all_bits};
    has_run_[r].assign(lanes[r].size(), 0);
    out_[r].clear();
    ReserveLong(out_[r], lanes[r].size());
  }
}

Squeezer::Kind Squeezer::KindOf(Op op) {
  return op == Op::kForward ? kF : op == Op::kBackwardWeight ? kW : kI;
}

double Squeezer::EndOf(const Part& part) const {
  return ends_[KindOf(part.op)][part.stage * Index(problem_.indices) + Index(part.microbatch)];
}

// The action at a position of the lane, counted in the direction of the run.
const Action& Squeezer::At(int rank, std::size_t position) const {
  const Lane& lane = (*in_)[rank];
  return from_end_ ? lane[lane.size() - 1 - position] : lane[position];
}

// When all inputs of the part are available, in the direction of the run. From the end,
// dependencies are reversed.
double Squeezer::Arrival(const Part& part) const {
  const Stage& stage = stages_[part.stage];
  const std::size_t indices = problem_.indices;
  const std::size_t at = part.stage * indices + Index(part.microbatch);
  const int slice = part.microbatch % problem_.slices;
  const bool has_slice_before = slice > 0, has_slice_after = slice < problem_.slices - 1;
  const Kind kind = KindOf(part.op);
  double arrival = 0;
  if (kind == kF) {
    if (from_end_) {
      arrival = ends_[kI][at];
      if (!stage.is_last)
        arrival = std::max(arrival, ends_[kF][at + indices] + stage.latency_after);
      if (has_slice_after) arrival = std::max(arrival, ends_[kF][at + 1]);
    } else {
      if (!stage.is_first) arrival = ends_[kF][at - indices] + stage.latency_before;
      if (has_slice_before) arrival = std::max(arrival, ends_[kF][at - 1]);
    }
  } else if (kind == kI) {
    if (from_end_) {
      if (problem_.split) arrival = ends_[kW][at];
      if (!stage.is_first)
        arrival = std::max(arrival, ends_[kI][at - indices] + stage.latency_before);
      if (has_slice_before) arrival = std::max(arrival, ends_[kI][at - 1]);
    } else {
      arrival = ends_[kF][at];
      if (!stage.is_last)
        arrival = std::max(arrival, ends_[kI][at + indices] + stage.latency_after);
      if (has_slice_after) arrival = std::max(arrival, ends_[kI][at + 1]);
    }
  } else if (!from_end_) {
    arrival = ends_[kI][at];
  }
  return arrival;
}

// The first action of the lane that is ready and leaves enough memory for the actions that it
// overtakes.
//
// A stage runs its actions of one kind in the order of the lane. Once one of them has to wait, the
// later ones are skipped; once one of every kind has to wait, nothing is ready.
Squeezer::Choice Squeezer::Choose(int r, double now) const {
  const Rank& rank = ranks_[r];
  const auto& has_run = has_run_[r];
  const bool weights_last = WeightsGiveWay();
  Choice choice;
  double held = rank.held, most_held = rank.held;
  std::uint64_t waiting = 0;
  int left = options_.window;
  for (std::size_t k = rank.head; k < has_run.size() && left > 0; ++k) {
    if (has_run[k] != 0) continue;
    --left;
    const Part& part = At(r, k).first;
    const Stage& stage = stages_[part.stage];
    const Kind kind = KindOf(part.op);
    const std::uint64_t bit = stage.first_bit << kind;
    if ((waiting & bit) == 0) {
      const bool fits = most_held + stage.taken[kind] <= memory_limit_;
      const double arrival = fits ? Arrival(part) : kNever;
      const bool ready = arrival <= now + slack_;
      if (ready && !(weights_last && kind == kW)) {
        choice.position = k;
        choice.arrival = arrival;
        return choice;
      }
      if (ready) {
        choice.position = k;
        choice.arrival = arrival;
      } else {
        choice.next_arrival = std::min(choice.next_arrival, arrival);
      }
      waiting |= bit;
      if (waiting == rank.all_bits) return choice;
    }
    held += stage.taken[kind];
    most_held = std::max(most_held, held);
    held -= stage.given[kind];
  }
  return choice;
}

bool Squeezer::WeightsGiveWay() const {
  if (from_end_ || options_.weights_last == SqueezeOptions::WeightsLast::kNever) return false;
  return options_.weights_last == SqueezeOptions::WeightsLast::kAlways || entering_ == 0;
}

void Squeezer::Start(int r, const Choice& choice, double now) {
  Rank& rank = ranks_[r];
  auto& has_run = has_run_[r];
  const Action& action = At(r, choice.position);
  const Part& part = action.first;
  const Stage& stage = stages_[part.stage];
  const Kind kind = KindOf(part.op);
  const double end = std::max(now, choice.arrival) + stage.duration[kind];
  out_[r].push_back(action);
  has_run[choice.position] = 1;
  while (rank.head < has_run.size() && has_run[rank.head] != 0) ++rank.head;
  rank.busy = true;
  rank.held += stage.taken[kind];
  peak_memory_ = std::max(peak_memory_, rank.held);
  rank.held -= stage.given[kind];
  if (kind == kF && stage.is_first) --entering_;
  makespan_ = std::max(makespan_, end);
  const std::size_t indices = problem_.indices;
  ends_[kind][part.stage * indices + Index(part.microbatch)] = end;
  const bool goes_up = (kind == kF) != from_end_;
  if (kind != kW && goes_up && !stage.is_last) Wake(part.stage + 1, end + stage.latency_after);
  if (kind != kW && !goes_up && !stage.is_first) Wake(part.stage - 1, end + stage.latency_before);
  events_.Set(r, end);
}

void Squeezer::Wake(int stage, double time) {
  const int rank = stages_[stage].rank;
  if (!ranks_[rank].busy && time < events_.time_of(rank)) {
    events_.Set(rank, time);
  }
}

}  // namespace penstock
