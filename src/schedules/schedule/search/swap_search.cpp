#include "schedule/search/swap_search.h"

#include <algorithm>

#include "base/index.h"

namespace penstock {
namespace {

// A swap is not undone for this many moves and up to as many more.
constexpr int kTenure = 12;

std::uint64_t KeyOf(int first, int second) {
  return static_cast<std::uint64_t>(first) << 32 | static_cast<std::uint32_t>(second);
}

}  // namespace

SwapSearch::SwapSearch(const Problem& problem)
    : problem_(problem),
      memory_limit_(problem.memory_limit * (1 + kRounding)),
      nodes_(Index(problem.placement.stages()) * Index(problem.indices) * kKinds),
      lanes_(Index(problem.placement.ranks())),
      next_(lanes_.size()),
      known_(nodes_.size()) {
  const Placement& placement = problem.placement;
  double total = 0;
  for (int s = 0; s < placement.stages(); ++s) {
    const StageCosts& cost = problem.costs.stages[s];
    total += TimeOfMicrobatch(cost, true) + problem.costs.comm;
    const auto on_other_rank = [&](int other) {
      return other >= 0 && placement.rank_of(other) != placement.rank_of(s);
    };
    const int previous = placement.previous(s), next = placement.next(s);
    const double durations[] = {cost.forward, cost.backward_input, cost.backward_weight};
    const double allocated[] = {cost.activation, cost.activation_after_i - cost.activation,
                                -cost.activation_after_i};
    for (int n = 0; n < problem.indices; ++n) {
      for (int kind = 0; kind < kKinds; ++kind) {
        Node& node =
            nodes_[Index(IdOf({Op::kForward, static_cast<std::uint16_t>(s), n})) + Index(kind)];
        node.rank = placement.rank_of(s);
        node.duration = durations[kind];
        node.allocated = allocated[kind];
        if (kind == kW) continue;
        const int from = kind == kF ? previous : next, to = kind == kF ? next : previous;
        if (on_other_rank(from)) {
          node.input = (from * problem.indices + n) * kKinds + kind;
          node.input_comm = CommBetween(problem, from, s);
        }
        if (on_other_rank(to)) {
          node.reader = (to * problem.indices + n) * kKinds + kind;
          node.reader_comm = CommBetween(problem, s, to);
        }
      }
    }
  }
  slack_ = kRounding * total * problem.indices;
}

int SwapSearch::IdOf(const Part& part) const {
  const int kind = part.op == Op::kForward ? kF : part.op == Op::kBackwardWeight ? kW : kI;
  return (part.stage * problem_.indices + part.microbatch) * kKinds + kind;
}

Action SwapSearch::ActionOf(int id) const {
  static constexpr Op kOps[] = {Op::kForward, Op::kBackwardInput, Op::kBackwardWeight};
  const int item = id / kKinds;
  return MakeAction(kOps[id % kKinds], item / problem_.indices, item % problem_.indices);
}

void SwapSearch::Load(const std::vector<Lane>& lanes) {
  for (std::size_t r = 0; r < lanes.size(); ++r) {
    lanes_[r].clear();
    double held = 0;
    for (const Action& action : lanes[r]) {
      const int id = IdOf(action.first);
      nodes_[Index(id)].position = lanes_[r].size();
      nodes_[Index(id)].held = held;
      held += nodes_[Index(id)].allocated;
      lanes_[r].push_back(id);
    }
  }
}

std::vector<Lane> SwapSearch::Lanes() const {
  std::vector<Lane> lanes(lanes_.size());
  for (std::size_t r = 0; r < lanes.size(); ++r) {
    for (const int id : lanes_[r]) lanes[r].push_back(ActionOf(id));
  }
  return lanes;
}

int SwapSearch::Before(const Node& node) const {
  return node.position == 0 ? -1 : lanes_[Index(node.rank)][node.position - 1];
}
int SwapSearch::After(const Node& node) const {
  const std::vector<int>& lane = lanes_[Index(node.rank)];
  return node.position + 1 == lane.size() ? -1 : lane[node.position + 1];
}

// When the input from another rank is there.
double SwapSearch::ArrivalOf(const Node& node) const {
  if (node.input < 0) return 0;
  const Node& input = nodes_[Index(node.input)];
  return input.head + input.duration + node.input_comm;
}

// The time that follows the node's end on another rank.
double SwapSearch::TailAfter(const Node& node) const {
  if (node.reader < 0) return 0;
  const Node& reader = nodes_[Index(node.reader)];
  return node.reader_comm + reader.duration + reader.tail;
}

// Sets the heads and tails of all nodes, and the makespan.
void SwapSearch::Evaluate() {
  order_.clear();
  std::fill(known_.begin(), known_.end(), 0);
  std::fill(next_.begin(), next_.end(), 0);
  for (std::size_t r = lanes_.size(); r-- > 0;) awake_.push_back(static_cast<int>(r));
  makespan_ = 0;
  while (!awake_.empty()) {
    const std::size_t r = Index(awake_.back());
    awake_.pop_back();
    const std::vector<int>& lane = lanes_[r];
    double end = 0;
    if (next_[r] > 0) {
      const Node& before = nodes_[Index(lane[next_[r] - 1])];
      end = before.head + before.duration;
    }
    for (; next_[r] < lane.size(); ++next_[r]) {
      const int id = lane[next_[r]];
      Node& node = nodes_[Index(id)];
      if (node.input >= 0 && known_[Index(node.input)] == 0) break;
      node.head = std::max(end, ArrivalOf(node));
      end = node.head + node.duration;
      known_[Index(id)] = 1;
      order_.push_back(id);
      // Its reader's rank may wait for it.
      if (node.reader < 0) continue;
      const Node& reader = nodes_[Index(node.reader)];
      if (next_[Index(reader.rank)] == reader.position) awake_.push_back(reader.rank);
    }
    makespan_ = std::max(makespan_, end);
  }
  for (std::size_t i = order_.size(); i-- > 0;) {
    Node& node = nodes_[Index(order_[i])];
    const int after = After(node);
    node.tail = TailAfter(node);
    if (after >= 0) {
      node.tail = std::max(node.tail, nodes_[Index(after)].duration + nodes_[Index(after)].tail);
    }
  }
}

// Whether two adjacent actions of a lane may be swapped: `second` does not need `first`, its stage
// keeps the order of its microbatches, and the memory suffices.
bool SwapSearch::MayOvertake(int first, int second) const {
  const int kind = first % kKinds, item = first / kKinds;
  const int second_kind = second % kKinds, second_item = second / kKinds;
  const int microbatches = problem_.indices;
  if (item == second_item) return false;
  if (kind == second_kind) {
    const int stage = item / microbatches, second_stage = second_item / microbatches;
    if (stage == second_stage) return false;
    const int up = kind == kF ? 1 : -1;
    const bool same_microbatch = item % microbatches == second_item % microbatches;
    if (kind != kW && same_microbatch && second_stage == stage + up) return false;
  }
  const Node& before = nodes_[Index(first)];
  return before.held + nodes_[Index(second)].allocated <= memory_limit_;
}

// The longest path through either of the two, if they were swapped.
double SwapSearch::Estimate(int first, int second) const {
  const Node& u = nodes_[Index(first)];
  const Node& v = nodes_[Index(second)];
  const int before = Before(u), after = After(v);
  const double start = before < 0 ? 0 : nodes_[Index(before)].head + nodes_[Index(before)].duration;
  const double follows = after < 0 ? 0 : nodes_[Index(after)].duration + nodes_[Index(after)].tail;
  const double v_end = std::max(start, ArrivalOf(v)) + v.duration;
  const double u_end = std::max(v_end, ArrivalOf(u)) + u.duration;
  const double u_tail = std::max(follows, TailAfter(u));
  const double v_tail = std::max(u.duration + u_tail, TailAfter(v));
  return std::max(v_end + v_tail, u_end + u_tail);
}

// Walks a critical path from its end. Returns the second action of the best swap on it, -1 if there
// is none.
int SwapSearch::ChooseMove() {
  int at = -1;
  for (const std::vector<int>& lane : lanes_) {
    if (lane.empty()) continue;
    const Node& last = nodes_[Index(lane.back())];
    if (last.head + last.duration >= makespan_ - slack_) at = lane.back();
  }
  int best = -1, equals = 0;
  double lowest = kNever;
  while (at >= 0) {
    const Node& node = nodes_[Index(at)];
    const int before = Before(node);
    bool by_lane = false;
    if (before >= 0) {
      const Node& previous = nodes_[Index(before)];
      by_lane = previous.head + previous.duration >= node.head - slack_;
    }
    if (by_lane && MayOvertake(before, at)) {
      const double estimate = Estimate(before, at);
      const auto found = tabu_.find(KeyOf(before, at));
      const bool is_tabu = found != tabu_.end() && found->second > moves_;
      if (!is_tabu || estimate < best_makespan_ - slack_) {
        if (estimate < lowest - slack_) equals = 0;
        if (estimate < lowest + slack_ && rng_.Below(++equals) == 0) {
          lowest = estimate;
          best = at;
        }
      }
    }
    const bool by_input = node.input >= 0 && ArrivalOf(node) >= node.head - slack_;
    if (by_input && (!by_lane || rng_.Below(2) == 0)) {
      at = node.input;
    } else {
      at = by_lane ? before : -1;
    }
  }
  return best;
}

// Swaps the action with the previous one of its lane.
void SwapSearch::Swap(int second) {
  Node& v = nodes_[Index(second)];
  const int first = Before(v);
  Node& u = nodes_[Index(first)];
  std::vector<int>& lane = lanes_[Index(v.rank)];
  std::swap(lane[u.position], lane[v.position]);
  std::swap(u.position, v.position);
  v.held = u.held;
  u.held += v.allocated;
  tabu_[KeyOf(second, first)] = moves_ + kTenure + rng_.Below(kTenure);
}

std::vector<Lane> SwapSearch::Run(const std::vector<Lane>& lanes, double moves, double patience,
                                  double enough) {
  Load(lanes);
  Evaluate();
  tabu_.clear();
  moves_ = 0;
  best_makespan_ = makespan_;
  std::vector<std::vector<int>> best = lanes_;
  double found_at = 0;
  while (moves_ < moves && moves_ - found_at < patience && best_makespan_ > enough + slack_) {
    const int second = ChooseMove();
    ++moves_;
    if (second < 0) continue;  // until swaps are no longer tabu
    Swap(second);
    Evaluate();
    if (order_.size() < nodes_.size()) break;
    if (makespan_ >= best_makespan_ - slack_) continue;
    best_makespan_ = makespan_;
    best = lanes_;
    found_at = moves_;
  }
  lanes_ = std::move(best);
  return Lanes();
}

}  // namespace penstock
