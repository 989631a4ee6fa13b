// Passes: schedule -> schedule, one file each. Each takes a valid schedule with any cells and gives
// a valid one, so they compose in any order; where the order changes what comes out, its comment
// says so. A pass whose cells are there already returns the schedule as it is.
//
// Adding a pass is one file, its declaration here and one line in pass_table.cpp.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "base/result.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace penstock {

// What a pass that weighs costs asks the simulator.
struct Priced {
  Timeline timeline;
  double makespan = 0;
  std::vector<double> peak_memory;  // by rank
};
using Pricer = std::function<Result<Priced>(const Schedule&)>;

// Adds SEND and RECV cells for every edge between two ranks: a SEND before the next compute action
// of its producer's rank, its RECV at the place in the consumer's lane that one global order of all
// messages gives it. So no transport deadlocks on them (see communication.cpp). Compute order
// stays; a schedule that has SEND or RECV already is returned as it is.
// Requires: the schedule is valid; throws InternalError where it deadlocks.
Schedule AddCommunication(const Schedule& schedule);

struct ShardingOptions {
  int prefetch = 1;     // stages gathered ahead of the one in use, at least 0
  bool reshard = true;  // free a stage's weights between its uses; else only after the last
};
// Adds UNSHARD, RESHARD and REDUCE_GRAD to every stage.
Result<Schedule> AddSharding(const Schedule& schedule, const ShardingOptions& options = {});

// Adds REDUCE_GRAD to every stage, after its last backward of an update and that one's SENDs.
Schedule AddReduceGrad(const Schedule& schedule);

struct SplitOptions {
  int delay = 0;               // backwards of the rank between I and its W
  bool delay_by_rank = false;  // r on rank r, in place of `delay`
};
// Splits every B in I and W. W stands behind its I (and the messages that follow it), or, with a
// delay, behind the delay-th I after it on the rank; never behind what needs its gradient.
Schedule SplitBackward(const Schedule& schedule, const SplitOptions& options = {});

struct MergeOptions {
  bool all = true;  // every I and its W, B taking I's place; else only where W directly follows
};
// Joins I and W in B.
Schedule MergeBackward(const Schedule& schedule, const MergeOptions& options = {});

struct OverlapOptions {
  // Every neighbouring F and B that are independent; else only where the inputs of both are there
  // when the first can start, so that none waits for the other's.
  bool all = false;
};
// Joins neighbouring F and B of a rank in pairs.
Schedule PairForwardBackward(const Schedule& schedule, const Costs& costs,
                             const OverlapOptions& options = {});

struct RecomputeOptions {
  // Only as many rows as bring each rank's peak memory to this; all rows where not given.
  std::optional<double> memory_limit = {};
};
// Adds RECOMPUTE before the I or B of rows that have something between it and their F.
// Errors: kInfeasible where a rank stays above the limit.
Result<Schedule> AddRecompute(const Schedule& schedule, const Costs& costs, const Pricer& price,
                              const RecomputeOptions& options = {});

struct OffloadOptions {
  // Only as many rows as bring each rank's peak memory to this; else to the lowest that is found.
  std::optional<double> memory_limit = {};
};
// Adds OFFLOAD and RELOAD where the links' time allows, so that no action starts later than before.
// Errors: kInfeasible where a rank stays above the limit.
Result<Schedule> AddOffload(const Schedule& schedule, const Costs& costs, const Pricer& price,
                            const OffloadOptions& options = {});

struct OptimizerOptions {
  // With post-validation a stage steps as soon as its own gradients are complete; else a rank's
  // stages step when all of them are, since the global norm needs every stage.
  bool post_validation = false;
};
// Adds the STEPs of every stage.
// Errors: kInvalidArgument where the schedule begins a batch before the one before it can step.
Result<Schedule> AddOptimizer(const Schedule& schedule, const OptimizerOptions& options = {});

}  // namespace penstock
