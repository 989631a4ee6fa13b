#include "schedule/search/list_scheduler.h"

#include <algorithm>

#include "base/index.h"
#include "base/result.h"

namespace penstock {

ListRule ListRule::BackwardFirst(const Placement& placement, int indices) {
  const int stages = placement.stages();
  const double span = indices + 1.0;
  ListRule rule;
  for (int stage = 0; stage < stages; ++stage) {
    const double deep = placement.model_stage(stage);
    const double classes = span * stages;
    rule.backward.offset.push_back(-2 * classes - deep / stages);
    rule.forward.offset.push_back(-deep * span);
    rule.weight.offset.push_back(2 * classes + deep / stages);
  }
  return rule;
}

ListScheduler::ListScheduler(const Problem& problem)
    : problem_(problem), kinds_(problem.split ? kKinds : kW) {
  const Placement& placement = problem.placement;
  const std::size_t indices = problem.indices;
  stages_.resize(placement.stages());
  ranks_.resize(placement.ranks());
  lanes_.resize(ranks_.size());
  f_arrivals_.resize(stages_.size() * indices);
  i_arrivals_.resize(stages_.size() * indices);
  double total = 0;
  for (int s = 0; s < placement.stages(); ++s) {
    const StageCosts& cost = problem.costs.stages[s];
    Stage& stage = stages_[s];
    stage.rank = placement.rank_of(s);
    stage.previous = placement.previous(s);
    stage.next = placement.next(s);
    const int chain = s / placement.chain_length();
    for (const int other : placement.stages_of(stage.rank)) {
      if (other / placement.chain_length() == chain) stage.chain_top = other;
    }
    stage.duration[kF] = cost.forward;
    stage.duration[kI] = TimeOfGradient(cost, problem.split);
    stage.duration[kW] = cost.backward_weight;
    stage.activation = cost.activation;
    stage.freed_by_w = problem.split ? cost.activation_after_i : 0;
    stage.freed_by_i = cost.activation - stage.freed_by_w;
    const double work = TimeOfMicrobatch(cost, problem.split);
    ranks_[stage.rank].work += work * problem.indices;
    total += work * problem.indices;
  }
  slack_ = kRounding * total;
  memory_limit_ = problem.memory_limit * (1 + kRounding);
  for (int r = 0; r < placement.ranks(); ++r) {
    Rank& rank = ranks_[r];
    rank.stages = placement.stages_of(r).data();
    rank.stage_count = static_cast<int>(placement.stages_of(r).size());
    lanes_[r].resize(indices * Index(kinds_) * Index(rank.stage_count));
  }
}

double ListScheduler::Run(const ListRule& rule, double give_up) {
  Reset(rule);
  for (int rank = events_.Pop(); rank >= 0; rank = events_.Pop()) {
    const double now = events_.time_of(rank);
    if (now + ranks_[rank].remaining > give_up - slack_) return kNever;
    Decide(rank, now);
  }
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    PENSTOCK_CHECK(
        ranks_[r].position == lanes_[r].size(),
        "list scheduling is stuck: the memory limit is below the memory of one microbatch");
  }
  return makespan_;
}

double ListScheduler::longest_span() const {
  double longest = 0;
  for (const Rank& rank : ranks_) longest = std::max(longest, rank.last_end - rank.first_start);
  return longest;
}

void ListScheduler::Reset(const ListRule& rule) {
  rule_ = &rule;
  makespan_ = 0;
  peak_memory_ = 0;
  const std::size_t indices = problem_.indices;
  std::fill(f_arrivals_.begin(), f_arrivals_.end(), kNever);
  std::fill(i_arrivals_.begin(), i_arrivals_.end(), kNever);
  const Preference* preferences[kKinds] = {&rule.forward, &rule.backward, &rule.weight};
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    Stage& stage = stages_[s];
    stage.most_ahead = rule.most_ahead.empty() ? problem_.indices : rule.most_ahead[s];
    for (int kind = 0; kind < kinds_; ++kind) {
      stage.done[kind] = 0;
      stage.preference[kind] = preferences[kind]->offset[s];
    }
    if (stage.previous < 0) {
      for (std::size_t n = 0; n < indices; ++n) {
        const std::size_t microbatch = n / Index(problem_.slices);
        f_arrivals_[s * indices + n] = rule.interval * static_cast<double>(microbatch);
      }
    }
  }
  events_.Reset(static_cast<int>(ranks_.size()));
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    rank.busy = false;
    rank.held = 0;
    rank.remaining = rank.work;
    rank.position = 0;
    events_.Set(static_cast<int>(r), 0);
  }
}

// The microbatch index at a place in the order of backwards: by microbatch, slices from the last.
int ListScheduler::MicrobatchAt(int place) const {
  const int slices = problem_.slices;
  return slices == 1 ? place : place - place % slices + (slices - 1 - place % slices);
}

// When the inputs of the stage's next action of the kind are available; kNever if unknown or none.
double ListScheduler::Arrival(int s, Kind kind) const {
  const Stage& stage = stages_[s];
  const int place = stage.done[kind];
  if (kind == kW) return place < stage.done[kI] ? 0 : kNever;
  if (place == problem_.indices) return kNever;
  const auto at = Index(s) * Index(problem_.indices);
  if (kind == kF) return f_arrivals_[at + Index(place)];
  return i_arrivals_[at + Index(MicrobatchAt(place))];
}

bool ListScheduler::MayStartForward(int s) const {
  const Stage& stage = stages_[s];
  if (stage.previous < 0 && stage.done[kF] - stage.done[kinds_ - 1] >= rule_->window) return false;
  if (stage.done[kF] - stage.done[kI] >= stage.most_ahead) return false;
  const Rank& rank = ranks_[stage.rank];
  return rank.held + stage.activation <= memory_limit_ && LeavesRoomForOldest(s);
}

// The guard that the header describes: on each stage of the rank, counts the microbatch indices
// from the oldest microbatch with forwards left, and at least that microbatch's own.
bool ListScheduler::LeavesRoomForOldest(int s) const {
  const Rank& rank = ranks_[stages_[s].rank];
  if (rank.stage_count == 1 && problem_.slices == 1) return true;
  double claimed = 0;
  for (int i = 0; i < rank.stage_count; ++i) {
    const Stage& stage = stages_[rank.stages[i]];
    const int top = stages_[stage.chain_top].done[kF];
    if (top == problem_.indices) continue;
    const int ahead =
        stage.done[kF] + (rank.stages[i] == s ? 1 : 0) - (top - top % problem_.slices);
    claimed += stage.activation * std::max(ahead, problem_.slices);
  }
  return claimed <= memory_limit_;
}

// Starts the rank's best action, or sets when the rank decides again.
void ListScheduler::Decide(int r, double now) {
  Rank& rank = ranks_[r];
  rank.busy = false;
  double next_arrival = kNever;
  const Choice best = BestReady(rank, now, next_arrival);
  double better = kNever;
  if (best.stage >= 0 && !(rule_->patience > 0 && BetterArrives(rank, best, now, better))) {
    Start(r, best, now);
  } else {
    events_.Set(r, best.stage >= 0 ? better : next_arrival);
  }
}

ListScheduler::Choice ListScheduler::BestReady(const Rank& rank, double now,
                                               double& next_arrival) const {
  Choice best;
  for (int i = 0; i < rank.stage_count; ++i) {
    const int s = rank.stages[i];
    const Stage& stage = stages_[s];
    for (int k = 0; k < kinds_; ++k) {
      const Kind kind = static_cast<Kind>(k);
      if (stage.preference[kind] >= best.preference) continue;
      const double arrival = Arrival(s, kind);
      if (arrival == kNever || (kind == kF && !MayStartForward(s))) continue;
      if (arrival > now + slack_) {
        next_arrival = std::min(next_arrival, arrival);
      } else {
        best = {s, kind, stage.preference[kind], arrival};
      }
    }
  }
  return best;
}

// Whether an action preferred to the chosen one is known to arrive soon enough to wait for.
bool ListScheduler::BetterArrives(const Rank& rank, const Choice& chosen, double now,
                                  double& arrival) const {
  const Stage& chosen_stage = stages_[chosen.stage];
  const double latest = now + rule_->patience * chosen_stage.duration[chosen.kind] - slack_;
  for (int i = 0; i < rank.stage_count; ++i) {
    const int s = rank.stages[i];
    for (const Kind kind : {kF, kI}) {
      if (stages_[s].preference[kind] >= chosen.preference) continue;
      const double candidate = Arrival(s, kind);
      if (candidate <= now + slack_ || candidate >= std::min(latest, arrival)) continue;
      if (kind == kI || MayStartForward(s)) arrival = candidate;
    }
  }
  return arrival < kNever;
}

void ListScheduler::Start(int r, const Choice& choice, double now) {
  static constexpr Op kOps[] = {Op::kForward, Op::kBackwardInput, Op::kBackwardWeight};
  Rank& rank = ranks_[r];
  Stage& stage = stages_[choice.stage];
  const Kind kind = choice.kind;
  const int place = stage.done[kind]++;
  const int n = kind == kF ? place : MicrobatchAt(place);
  const double end = std::max(now, choice.arrival) + stage.duration[kind];
  if (rank.position == 0) rank.first_start = end - stage.duration[kind];
  rank.last_end = end;
  const Preference& preference = kind == kF   ? rule_->forward
                                 : kind == kI ? rule_->backward
                                              : rule_->weight;
  const int next = place + 1;
  if (preference.group == 1 || next % preference.group == 0) {
    stage.preference[kind] += preference.period;
  }
  const Op op = kind == kI && !problem_.split ? Op::kBackward : kOps[kind];
  lanes_[r][rank.position++] = MakeAction(op, choice.stage, n);

  const std::size_t indices = problem_.indices;
  if (kind == kF) {
    rank.held += stage.activation;
    peak_memory_ = std::max(peak_memory_, rank.held);
    if (stage.next >= 0) {
      Publish(&f_arrivals_[Index(stage.next) * indices + Index(n)], r, stage.next, end);
    } else {
      i_arrivals_[Index(choice.stage) * indices + Index(n)] = end;
    }
  } else if (kind == kI) {
    rank.held -= stage.freed_by_i;
    if (stage.previous >= 0) {
      Publish(&i_arrivals_[Index(stage.previous) * indices + Index(n)], r, stage.previous, end);
    }
  } else {
    rank.held -= stage.freed_by_w;
  }
  rank.busy = true;
  rank.remaining -= stage.duration[kind];
  makespan_ = std::max(makespan_, end);
  events_.Set(r, end);
}

// Makes a value available to `to_stage` at `end`, plus the latency if it changes ranks.
void ListScheduler::Publish(double* arrival, int from_rank, int to_stage, double end) {
  const int to_rank = stages_[to_stage].rank;
  *arrival = end + problem_.costs.Comm(from_rank, to_rank);
  Rank& rank = ranks_[to_rank];
  if (!rank.busy && *arrival < events_.time_of(to_rank)) events_.Set(to_rank, *arrival);
}

}  // namespace penstock
