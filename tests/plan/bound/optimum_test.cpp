// Bounds and searches against the optimum of small instances.
#include <gtest/gtest.h>

#include "plan/bound/makespan_bound.h"
#include "plan/schedule/placement_search.h"
#include "schedule/search/problem/price_lanes.h"

namespace penstock {
namespace {

using Form = PlacementSearch::Form;

constexpr double kRelative = 1e-9;

struct Instance {
  int ranks;
  bool zigzag;  // else looped, or linear with one chunk
  int chunks, microbatches;
  int stages_in_memory;  // of one rank
  int times[3];          // F, I and W of a stage
  int comm;
  int optimum;
};

// Makespans that CP-SAT (OR-Tools 9.15) proved to be optimal: one interval per action without
// overlap on its rank, one cumulative resource per rank for memory from the start of F to the end
// of W, and the order of microbatches on each stage.
constexpr Instance kInstances[] = {
    {1, false, 2, 3, 2, {2, 2, 2}, 0, 36}, {1, false, 2, 3, 3, {2, 2, 2}, 0, 36},
    {1, false, 2, 3, 4, {2, 2, 2}, 0, 36}, {1, false, 2, 3, 4, {2, 3, 1}, 1, 36},
    {2, false, 1, 3, 1, {2, 2, 2}, 0, 30}, {2, false, 1, 3, 2, {2, 2, 2}, 0, 20},
    {2, false, 1, 3, 2, {2, 3, 1}, 1, 26}, {2, false, 2, 3, 2, {2, 2, 2}, 0, 50},
    {2, false, 2, 3, 3, {2, 2, 2}, 0, 40}, {2, false, 2, 3, 4, {2, 2, 2}, 0, 38},
    {2, false, 2, 3, 4, {2, 3, 1}, 1, 46}, {2, true, 2, 3, 2, {2, 2, 2}, 0, 50},
    {2, true, 2, 3, 3, {2, 2, 2}, 0, 42},  {2, true, 2, 3, 4, {2, 2, 2}, 0, 38},
    {2, true, 2, 3, 4, {2, 3, 1}, 1, 44},  {2, false, 3, 3, 3, {2, 2, 2}, 0, 70},
    {2, false, 3, 3, 4, {2, 2, 2}, 0, 60}, {2, false, 3, 3, 6, {2, 2, 2}, 0, 56},
    {2, false, 3, 3, 6, {2, 3, 1}, 1, 67}, {2, true, 3, 3, 3, {2, 2, 2}, 0, 70},
    {2, true, 3, 3, 4, {2, 2, 2}, 0, 60},  {2, true, 3, 3, 6, {2, 2, 2}, 0, 56},
    {2, true, 3, 3, 6, {2, 3, 1}, 1, 62},  {2, false, 1, 4, 1, {2, 2, 2}, 0, 40},
    {2, false, 1, 4, 2, {2, 2, 2}, 0, 26}, {2, false, 1, 4, 2, {2, 3, 1}, 1, 32},
    {2, false, 2, 4, 2, {2, 2, 2}, 0, 66}, {2, false, 2, 4, 3, {2, 2, 2}, 0, 52},
    {2, false, 2, 4, 4, {2, 2, 2}, 0, 50}, {2, false, 2, 4, 4, {2, 3, 1}, 1, 58},
    {2, true, 2, 4, 2, {2, 2, 2}, 0, 66},  {2, true, 2, 4, 3, {2, 2, 2}, 0, 54},
    {2, true, 2, 4, 4, {2, 2, 2}, 0, 50},  {2, true, 2, 4, 4, {2, 3, 1}, 1, 56},
    {2, false, 3, 4, 3, {2, 2, 2}, 0, 92}, {2, false, 3, 4, 4, {2, 2, 2}, 0, 78},
    {2, false, 3, 4, 6, {2, 2, 2}, 0, 74}, {2, false, 3, 4, 6, {2, 3, 1}, 1, 84},
    {2, true, 3, 4, 3, {2, 2, 2}, 0, 92},  {2, true, 3, 4, 4, {2, 2, 2}, 0, 78},
    {2, true, 3, 4, 6, {2, 2, 2}, 0, 74},  {2, true, 3, 4, 6, {2, 3, 1}, 1, 80},
    {3, false, 1, 3, 1, {2, 2, 2}, 0, 42}, {3, false, 1, 3, 2, {2, 2, 2}, 0, 28},
    {3, false, 1, 3, 2, {2, 3, 1}, 1, 40}, {3, false, 2, 3, 2, {2, 2, 2}, 0, 66},
    {3, false, 2, 3, 3, {2, 2, 2}, 0, 54}, {3, false, 2, 3, 4, {2, 2, 2}, 0, 46},
    {3, false, 2, 3, 4, {2, 3, 1}, 1, 70}, {3, true, 2, 3, 2, {2, 2, 2}, 0, 66},
    {3, true, 2, 3, 3, {2, 2, 2}, 0, 56},  {3, true, 2, 3, 4, {2, 2, 2}, 0, 46},
    {3, true, 2, 3, 4, {2, 3, 1}, 1, 65},  {3, false, 1, 4, 1, {2, 2, 2}, 0, 56},
    {3, false, 1, 4, 2, {2, 2, 2}, 0, 34}, {3, false, 1, 4, 2, {2, 3, 1}, 1, 46},
    {3, false, 2, 4, 2, {2, 2, 2}, 0, 86}, {3, false, 2, 4, 3, {2, 2, 2}, 0, 70},
    {3, false, 2, 4, 4, {2, 2, 2}, 0, 60}, {3, false, 2, 4, 4, {2, 3, 1}, 1, 80},
    {3, true, 2, 4, 2, {2, 2, 2}, 0, 86},  {3, true, 2, 4, 3, {2, 2, 2}, 0, 72},
    {3, true, 2, 4, 4, {2, 2, 2}, 0, 58},  {3, true, 2, 4, 4, {2, 3, 1}, 1, 77},
};

ScheduleParams ParamsOfInstance(const Instance& instance) {
  ScheduleParams params;
  params.ranks = instance.ranks;
  params.microbatches = instance.microbatches;
  params.forward = instance.times[0] * instance.chunks;
  params.backward_input = instance.times[1] * instance.chunks;
  params.backward_weight = instance.times[2] * instance.chunks;
  params.comm = instance.comm;
  params.overlap = {OverlapRule::Kind::kSum};
  return params;
}

std::string TextOf(const Instance& instance) {
  return fmt::format("ranks {} {} chunks {} microbatches {} memory {} times {} {} {} comm {}",
                     instance.ranks, instance.zigzag ? "zigzag" : "looped", instance.chunks,
                     instance.microbatches, instance.stages_in_memory, instance.times[0],
                     instance.times[1], instance.times[2], instance.comm);
}

TEST(OptimumTest, SearchesReachItAndBoundsAreNotAbove) {
  int proved = 0;
  for (const Instance& instance : kInstances) {
    const ScheduleParams params = ParamsOfInstance(instance);
    const Form form = instance.chunks == 1 ? Form::kLinear
                      : instance.zigzag    ? Form::kZigzag
                                           : Form::kLooped;
    const Placement placement = PlacementSearch::PlacementOf(form, instance.ranks, instance.chunks);
    Costs costs = CostsOf(params, placement);
    costs.overlap = params.overlap;
    const double limit = static_cast<double>(instance.stages_in_memory) / instance.chunks;
    const double bound =
        LengthBound(placement, costs, instance.microbatches, limit, Objective::kMakespan);
    EXPECT_LE(bound, instance.optimum * (1 + kRelative)) << TextOf(instance);
    PlacementSearch search(form, instance.chunks, params, costs);
    search.Prepare();
    const std::vector<Lane> lanes = search.Run(limit, 1);
    const double makespan =
        PriceLanes({placement, costs, instance.microbatches, 1, true, limit}, lanes).makespan;
    EXPECT_GE(makespan, instance.optimum * (1 - kRelative)) << TextOf(instance);
    EXPECT_LE(makespan, instance.optimum * (1 + kRelative)) << TextOf(instance);
    proved += bound >= instance.optimum * (1 - kRelative);
  }
  const int instances = std::size(kInstances);
  EXPECT_GE(proved, instances * 2 / 3) << "of " << instances;
}

}  // namespace
}  // namespace penstock
