// Passes: schedule -> schedule, one file each. Each takes a valid schedule with any actions and
// returns a valid one, so they compose in any order. If the order changes the result, the pass's
// comment says so. A pass whose actions exist already returns the schedule unchanged. Only
// `vocabulary` must come before all others, except passes that split or merge backwards.
//
// Adding a pass takes one file, its declaration here and one line in pass_table.cpp.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "base/result.h"
#include "schedule/action.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace penstock {

// What a pass that depends on costs asks the simulator.
struct Priced {
  Timeline timeline;
  double makespan = 0;
  std::vector<double> peak_memory;  // by rank
};
using Pricer = std::function<Result<Priced>(const Schedule&)>;

// Adds SEND and RECV for every edge between two ranks. A SEND goes before the next compute action
// of its producer's rank; its RECV goes where one global order of all messages places it in the
// consumer's lane. So no transport deadlocks on them (see communication.cpp). Compute actions keep
// their order. Returns a schedule that has SEND or RECV already unchanged.
// Requires: the schedule is valid; throws InternalError if it deadlocks.
Schedule AddCommunication(const Schedule& schedule);

struct WaitSendOptions {
  // The most SENDs of a rank that are in flight at once, in both directions together; at least 1.
  // Not set: waits only for messages that the rank knows to be received, or at the end.
  std::optional<int> budget = {};
};
// Adds a WAIT_SEND for each SEND, and SEND and RECV if there are none. Returns a schedule that has
// WAIT_SEND already unchanged. Errors: kInvalidArgument for a budget below 1 or a sharded
// vocabulary; kInfeasible if a rank must have more SENDs in flight, because its messages are
// received in another order. AddCommunication's order admits every budget.
Result<Schedule> AddWaitSends(const Schedule& schedule, const WaitSendOptions& options = {});

// Removes all WAIT_SENDs and WAIT_REDUCE_GRADs, for a runtime that waits only where it needs to.
Schedule WithoutWaits(const Schedule& schedule);

struct ShardingOptions {
  // How early weights are gathered: while a rank uses one stage, it gathers the weights of the next
  // `lookahead` other stages that it uses. At least 0.
  int lookahead = 1;
  // How long they stay: weights are freed after a use unless the rank uses them again before
  // `residency` other stages. Weights that `lookahead` would gather again at once stay, so values
  // below it have no effect. Not set: as low as possible.
  std::optional<int> residency = {};
  // In place of `lookahead`: rank r gathers r + 1 stages early, but no more than stay. Later ranks
  // start later, so they have more time to gather.
  bool lookahead_by_rank = false;
};
// The residency with which weights stay until the last use of a step.
inline constexpr int kResidentToTheEnd = kMaxStages;
// Adds UNSHARD, RESHARD and REDUCE_GRAD to every stage. Keeps the UNSHARDs of a schedule that has
// them, and frees the weights that it leaves gathered at the end. Errors: kInvalidArgument for an
// option below 0.
Result<Schedule> AddSharding(const Schedule& schedule, const ShardingOptions& options = {});

// Adds REDUCE_GRAD to every stage, after its last backward of an update and the SENDs of that
// backward.
Schedule AddReduceGrad(const Schedule& schedule);

// Adds a WAIT_REDUCE_GRAD after each REDUCE_GRAD, or, if deferred, before the rank's next one or at
// the end of its lane. Returns a schedule that has WAIT_REDUCE_GRAD already unchanged.
Schedule AddReductionWaits(const Schedule& schedule, bool deferred = false);

// Adds SEND and RECV, and REDUCE_GRAD, in which torch's runtime scales gradients; and, in a
// schedule with WAIT_SENDs, for torch 2.15, WAIT_REDUCE_GRAD.
Schedule LowerForTorch(const Schedule& schedule);

struct SplitOptions {
  int delay = 0;               // number of backwards of the rank between I and its W
  bool delay_by_rank = false;  // r on rank r, in place of `delay`
};
// Splits every B into I and W. W follows its I (and the messages after it), or, with a delay, the
// delay-th next I on the rank. It always comes before what needs its gradient.
Schedule SplitBackward(const Schedule& schedule, const SplitOptions& options = {});

struct MergeOptions {
  bool all = true;  // every I and its W, with B in place of I; else only adjacent ones
};
// Merges I and W into B.
Schedule MergeBackward(const Schedule& schedule, const MergeOptions& options = {});

struct OverlapOptions {
  // Pairs all adjacent F and B that are independent; else only if the inputs of both are available
  // when the first can start, so that neither is delayed.
  bool all = false;
};
// Pairs adjacent F and B of a rank.
Schedule PairForwardBackward(const Schedule& schedule, const Costs& costs,
                             const OverlapOptions& options = {});

struct RecomputeOptions {
  // Recomputes only as many microbatches as bring each rank's peak memory to this; all if not set.
  std::optional<double> memory_limit = {};
};
// Adds RECOMPUTE before every I or B; with a limit, never where that directly follows its F.
// Errors: kInfeasible if a rank stays above the limit.
Result<Schedule> AddRecompute(const Schedule& schedule, const Costs& costs, const Pricer& price,
                              const RecomputeOptions& options = {});

struct OffloadOptions {
  // Offloads only as many microbatches as bring each rank's peak memory to this; if not set, as
  // many as give the lowest peak found.
  std::optional<double> memory_limit = {};
};
// Adds OFFLOAD and RELOAD where the links have time for them, so that no action starts later.
// Errors: kInfeasible if a rank stays above the limit.
Result<Schedule> AddOffload(const Schedule& schedule, const Costs& costs, const Pricer& price,
                            const OffloadOptions& options = {});

struct OptimizerOptions {
  // With post-validation a stage steps once its own gradients are complete; else a rank's stages
  // step once all of theirs are, since the global norm needs every stage.
  bool post_validation = false;
};
// Adds the STEPs of every stage.
// Errors: kInvalidArgument if the schedule starts a batch before the previous one can step.
Result<Schedule> AddOptimizer(const Schedule& schedule, const OptimizerOptions& options = {});

// Shards the vocabulary over the ranks: adds EMBED, S, T and EMBED_GRAD of every microbatch to
// every lane where the costs leave time for them, and moves the backwards one microbatch back. See
// vocabulary.h.
// Errors: kInvalidArgument for a schedule with two chains, slices, several steps or no flush, or
// with actions other than F, I, W and B.
Result<Schedule> AddVocabulary(const Schedule& schedule, const Costs& costs);

}  // namespace penstock
