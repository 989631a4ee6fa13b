// Refusals of options that would have no effect on what is asked: ignoring them would let a user
// believe figures that are of something else.
//
// Errors: kInvalidArgument, which names the option, says why, and what to do.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/options/schedule_options.h"

namespace penstock {

// An option that was given, as users write it ("--ranks").
std::vector<std::string> GivenOptions(const ScheduleOptions& options);

// Refuses options that no schedule uses; in a comparison one is enough. A single algorithm refuses
// the knobs that it does not read by itself (CheckParams).
Status RefuseUnread(const ScheduleOptions& options);
// Refuses what the candidate asks for by its own options and does not read.
Status RefuseOwnUnread(const Candidate& candidate, const ScheduleOptions& options);
// Resets what the algorithm does not read, but for the memory limit, which a comparison marks.
void DropUnread(const Algorithm& algorithm, ScheduleOptions& options);
// Refuses options that none of these algorithms uses.
Status RefuseUnreadByAll(const ScheduleOptions& options, std::span<const Algorithm> algorithms);
// Refuses prices of what none of the schedules does. Requires: their passes have run.
Status RefuseUnreadPrices(const ScheduleOptions& options,
                          std::span<const ChosenSchedule> schedules);
// All but those named: `why` says what the others have no effect on.
Status RefuseOthers(const ScheduleOptions& options, const std::vector<std::string>& read,
                    const std::string& why);

}  // namespace penstock
