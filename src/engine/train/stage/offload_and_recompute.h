// What the OFFLOAD and RECOMPUTE actions of a schedule require of its stages.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/processes/local_ranks.h"
#include "schedule/schedule.h"
#include "train/offload/activation_pool.h"

namespace penstock {

// Returns, by microbatch index, whether the stage recomputes the microbatch's activations. Empty if
// it recomputes none.
std::vector<bool> RecomputedMicrobatches(const Schedule& schedule, int stage);

// Creates the pools of this process's ranks: files in `folder`, or for a device, memory of the
// host. `devices` are the ranks' devices. Returns the pools by rank; null for other processes'
// ranks and ranks without an OFFLOAD. Errors: as FilePool::Make.
Result<std::vector<std::shared_ptr<ActivationPool>>> MakePools(
    const Schedule& schedule, const std::string& folder, const LocalRanks& ranks,
    const std::vector<c10::Device>& devices);

}  // namespace penstock
