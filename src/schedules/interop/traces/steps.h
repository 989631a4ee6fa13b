// Divides the actions of ranks into the steps of a training run. Private to interop/traces.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "interop/traces/rank_actions.h"

namespace penstock {

// Sets the step of each action, and leaves out actions of no step: by the events that contain
// steps; without any, a step ends where an action repeats. Actions that do not name their
// microbatch are then of one step, or of `forwards` forwards per rank and step.
void DivideIntoSteps(std::vector<RankActions>& ranks, std::optional<std::int64_t> forwards);

// The steps that every rank has actions of, in ascending order.
std::vector<int> CommonSteps(const std::vector<RankActions>& ranks);

}  // namespace penstock
