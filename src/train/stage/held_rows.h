// What a schedule's OFFLOAD and RECOMPUTE cells ask of the stages that it trains.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/hosts/hosted_ranks.h"
#include "schedule/schedule.h"
#include "train/stage/activation_pool.h"

namespace penstock {

// By row: whether the stage makes its activations again; empty where it does so for none.
std::vector<bool> RecomputedRows(const Schedule& schedule, int stage);

// One a rank, with its file in `folder`; null for a rank without an OFFLOAD. Errors as
// ActivationPool::Make.
Result<std::vector<std::shared_ptr<ActivationPool>>> MakePools(const Schedule& schedule,
                                                               const std::string& folder,
                                                               const HostedRanks& ranks);

}  // namespace penstock
