// The price of one configuration of a job.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/search/training_plan.h"
#include "scenario/price/build.h"

namespace penstock {

// A schedule of the catalog with the parameters that a search varies.
struct ScheduleChoice {
  std::string name;
  int chunks = 1, slices = 1;
  bool searches = false;         // takes long to generate
  bool takes_limit = false;      // of the memory
  bool is_common = true;         // priced for every division, not only for the fastest
  std::vector<int> layers = {};  // of each stage; empty: as even as possible
};

// Returns the schedules for this many pipeline ranks and layers. An empty list of
// allowed ones: all that keep weights in step.
std::vector<ScheduleChoice> ScheduleChoices(int pipeline, int layers,
                                            const std::vector<std::string>& allowed,
                                            const std::vector<std::string>& excluded);

// Returns where the schedule places its stages. Errors: the algorithm's.
Result<Placement> PlacementOf(const ScheduleChoice& choice, const JobDivision& division);

// Prices a configuration, without its lower bound. `check` may refuse the schedule. Errors: as
// BuildOne.
Result<TrainingPlan> PriceOf(
    const Scenario& base, const JobDivision& division, const ScheduleChoice& choice,
    const std::function<Status(const Schedule&)>& check = [](const Schedule&) -> Status {
      return {};
    });

// Returns the plan's schedule with its costs. Errors: as BuildOne.
Result<PricedSchedule> BuildPlan(const TrainingPlan& plan);

// Sets the plan's lower bound.
void AddBound(TrainingPlan& plan);

}  // namespace penstock
