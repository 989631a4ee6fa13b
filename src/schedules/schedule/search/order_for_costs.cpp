#include "schedule/search/order_for_costs.h"

#include <array>

#include "schedule/search/problem/average_times.h"
#include "schedule/search/problem/price_lanes.h"
#include "schedule/search/squeeze.h"

namespace penstock {
namespace {

using Direction = SqueezeOptions::Direction;
using WeightsLast = SqueezeOptions::WeightsLast;

// The work of squeezing, in actions run: about a seventh of a second on one core.
constexpr double kActionBudget = 1e6;
constexpr double kMostPasses = 100;

// The ways to squeeze from the start, after squeezing from the end.
constexpr std::array<SqueezeOptions, 4> kWays = {{
    {Direction::kFromStart, WeightsLast::kNever, 0.5},
    {Direction::kFromStart, WeightsLast::kNever, 0},
    {Direction::kFromStart, WeightsLast::kInDrain, 0.5},
    {Direction::kFromStart, WeightsLast::kInDrain, 0, true},
}};

struct Order {
  std::vector<Lane> lanes;
  LanePrice price;
};

Order PricedOrder(const Problem& problem, std::vector<Lane> lanes) {
  const LanePrice price = PriceLanes(problem, lanes);
  return {std::move(lanes), price};
}

void KeepBetter(Order& best, Order other) {
  const double slack = kRounding * best.price.makespan;
  const bool shorter = other.price.makespan < best.price.makespan - slack;
  if (shorter && other.price.longest_span <= best.price.longest_span + slack) {
    best = std::move(other);
  }
}

Costs WithEqualTimes(Costs costs) {
  for (StageCosts& stage : costs.stages) SetEqualTimes(stage, 1);
  costs.ClearComm();
  return costs;
}

Order BetterOrder(const Problem& problem, const LaneMaker& make) {
  const Costs equal_times = WithEqualTimes(problem.costs);
  Order best = PricedOrder(problem, make({problem.placement, equal_times, problem.indices,
                                          problem.slices, problem.split, problem.memory_limit}));
  KeepBetter(best, PricedOrder(problem, make(problem)));
  return best;
}

// Squeezes alternately from both ends, in each way until it does not help any more.
void Squeeze(const Problem& problem, Order& best) {
  const double actions = (problem.split ? 3.0 : 2.0) * problem.placement.stages() * problem.indices;
  double passes = problem.effort * std::min(kActionBudget / actions, kMostPasses);
  Squeezer squeezer(problem);
  const int window = 16 * problem.placement.chunks();
  SqueezeOptions back;
  back.direction = Direction::kFromEnd;
  back.window = window;
  for (SqueezeOptions forth : kWays) {
    forth.window = window;
    for (bool helped = true; helped && passes >= 2; passes -= 2) {
      const double before = best.price.makespan;
      if (squeezer.Run(best.lanes, back) == kNever) return;
      const std::vector<Lane> moved = squeezer.lanes();
      if (squeezer.Run(moved, forth) == kNever) return;
      KeepBetter(best, PricedOrder(problem, squeezer.lanes()));
      helped = best.price.makespan < before;
    }
  }
}

}  // namespace

std::vector<Lane> OrderForCosts(const Problem& problem, const LaneMaker& make) {
  if (HasEqualTimes(problem)) return make(problem);
  return BetterOrder(problem, make).lanes;
}

std::vector<Lane> Squeezed(const Problem& problem, std::vector<Lane> lanes) {
  Order best = PricedOrder(problem, std::move(lanes));
  Squeeze(problem, best);
  return std::move(best.lanes);
}

std::vector<Lane> SqueezedOrderForCosts(const Problem& problem, const LaneMaker& make) {
  if (HasEqualTimes(problem)) return make(problem);
  return Squeezed(problem, BetterOrder(problem, make).lanes);
}

}  // namespace penstock
