// What the OFFLOAD and RECOMPUTE actions of a schedule require of the stages that it trains.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/hosts/hosted_ranks.h"
#include "schedule/schedule.h"
#include "train/stage/activation_pool.h"

namespace penstock {

// Returns, by microbatch index, whether the stage recomputes its activations; empty if it
// recomputes none.
std::vector<bool> RecomputedMicrobatches(const Schedule& schedule, int stage);

// Creates one pool per rank, with its file in `folder`; null for ranks without an OFFLOAD. Errors:
// as ActivationPool::Make.
Result<std::vector<std::shared_ptr<ActivationPool>>> MakePools(const Schedule& schedule,
                                                               const std::string& folder,
                                                               const HostedRanks& ranks);

}  // namespace penstock
