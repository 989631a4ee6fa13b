// Changes of a schedule by hand: one action moves to another place on its rank.
#pragma once

#include <optional>

#include "playground/priced.h"
#include "playground/question.h"
#include "schedule/schedule.h"

namespace penstock::playground {

// The action at `from` of a rank's lane moves to `to`; those in between move up or down.
struct Move {
  int rank = 0;
  int from = 0;
  int to = 0;
};

// Errors: kInvalidArgument if a member is missing or no such place exists.
Result<Move> ReadMove(const Json& object, const Schedule& schedule);
void Apply(const Move& move, Schedule& schedule);

// {"places": [{"to", "makespan", "peak_memory"}], "before": reason, "after": reason}: where the
// action at (rank, from) may go, and why it may go no further; no reason at an end of the lane.
// Looks at most kMostPlaces far in each direction.
Json PlacesJson(const Subject& subject, int rank, int from);
inline constexpr int kMostPlaces = 64;

// Returns a better order of the same actions: one with a shorter makespan that needs no more
// memory, or no more than the limit of the scenario. Nothing if the local search finds none.
std::optional<Schedule> Improved(const PricedSchedule& priced, const Schedule& schedule);

}  // namespace penstock::playground
