// Automatic scheduling: the best schedule for given costs within a memory limit, over all
// placements.
//
// Candidates are all schedules of the catalog that flush, and searches on linear, looped, vee and
// zigzag placements. Each search runs within fixed limits, multiples of a part of a microbatch,
// from the lowest to the highest that is allowed. What is searched within one limit depends on
// lower limits only, so a larger limit never gives a worse result. A search is left out if a lower
// bound shows that it cannot help.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "schedule/catalog.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"

namespace penstock {

struct ScheduleQuestion {
  // The sizes, times, limit and objective; `chunks` and what only some schedules read are ignored.
  ScheduleParams params;
  // The numbers of stages per rank that are allowed.
  std::vector<int> chunks = {1, 2, 3, 4};
  // The schedules of the catalog that are allowed, besides what is found by search; empty: all.
  std::vector<std::string> schedules = {};
  // The costs of a placement; empty: the costs of `params`.
  std::function<Costs(const Placement&)> costs = {};
  // Returns true to end early, with the best so far. Asked between searches, on any thread.
  std::function<bool()> stop = {};
  // Called whenever a better schedule is found, with its length, on any thread but one at a time.
  // The answer may be longer than the last length, if more memory would otherwise be worse.
  std::function<void(double length)> improved = {};
  // Called after every search, with the part of the work that is done.
  std::function<void(double part)> progress = {};
};

struct PlannedSchedule {
  // The name of the catalog, with its options ("interleaved-zb:group=4"), or the name of a search:
  // "linear-search", "looped-search", "vee-search", "zigzag-search".
  std::string name;
  Schedule schedule;
  Costs costs;
  double length = 0;  // the makespan, or the longest span
  double makespan = 0;
  double peak_memory = 0;  // of the worst rank
  // Within this memory, no schedule of the placements that are searched is shorter, and no
  // schedule of the catalog with two chains.
  double lower_bound = 0;
  // No schedule of its own placement is shorter within the question's limit.
  double placement_bound = 0;
};

struct SchedulePlan {
  // By memory, ascending, each shorter than the previous one. The last one is the best within the
  // limit.
  std::vector<PlannedSchedule> front;
  // Within the question's limit, no schedule that `front` may have is shorter.
  double lower_bound = 0;
  int searches = 0;
  bool stopped = false;  // whether stop() ended it

  const PlannedSchedule& best() const { return front.back(); }
};

// Deterministic unless stopped: the number of cores does not change the result.
// Errors: kInvalidArgument about `memory_limit` if it is below the memory of one microbatch, about
// `chunks`, or about another size that no schedule has.
Result<SchedulePlan> PlanSchedule(const ScheduleQuestion& question);

}  // namespace penstock
