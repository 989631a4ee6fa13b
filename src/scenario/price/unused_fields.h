// Refusals of fields that would have no effect on what is asked: ignoring them would let a user
// believe figures that are of something else. Which schedules read a field is declared in fields.h.
//
// Errors: kInvalidArgument about the field; the message says why it has no effect and what to do.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "scenario/price/build.h"
#include "scenario/scenario.h"

namespace penstock {

// Refuses fields that no schedule reads; in a comparison one is enough. A single algorithm refuses
// parameters that it does not read by itself (CheckParams).
Status RefuseUnused(const Scenario& scenario, const Purpose& purpose);
// Refuses fields that a candidate has of its own and does not read.
Status RefuseOwnUnused(const Candidate& candidate, const Scenario& scenario,
                       const Purpose& purpose);
// Resets the fields that the algorithm does not read. Keeps the memory limit, which a comparison
// marks.
void DropUnsupported(const Algorithm& algorithm, Scenario& scenario);
// Refuses fields that none of these algorithms reads.
Status RefuseUnusedByAll(const Scenario& scenario, const Purpose& purpose,
                         std::span<const Algorithm> algorithms);
// Refuses prices of what none of the schedules does. Requires: their passes have run.
Status RefuseUnusedPrices(const Scenario& scenario, const Purpose& purpose,
                          std::span<const PricedSchedule> schedules);
// Refuses all fields but those named: `why` says what the others have no effect on.
Status RefuseOthers(const Scenario& scenario, const std::vector<std::string_view>& read,
                    const std::string& why);

}  // namespace penstock
