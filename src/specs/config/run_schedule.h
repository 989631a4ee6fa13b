// The schedule of a run, with the ranks and the chunks that the configuration leaves open.
#pragma once

#include "base/result.h"
#include "config/train_config.h"
#include "schedule/schedule.h"

namespace penstock {

// Returns the run's schedule, which is valid, and stores the choices in `config.pipeline`. Chooses
// as ranks the largest number from 2 to 4 that is at most `cores` and divides the stages, else 2;
// as chunks, stages divided by ranks; as schedule, 1f1b, or interleaved if there are several
// chunks. A CSV determines all of them. Errors: kInvalidArgument for an invalid schedule, with its
// first fault, and for one that training does not support.
//
// Without a flush, the schedule streams over as many steps of the run as have about a thousand
// microbatches. Then the pipeline drains once.
Result<Schedule> ChooseSchedule(TrainConfig& config, int cores);

// The two parts of ChooseSchedule that do not choose: refuses what `parallel` has and the engine
// does not run, and returns the run's schedule for a valid one of one replica. The planner asks
// them, too.
Status CheckParallel(const TrainConfig& config);
Result<Schedule> ScheduleOfRun(Schedule schedule, TrainConfig& config);

// Returns the chosen schedule, which has no flush, for another number of steps. Requires:
// ChooseSchedule has filled in the configuration.
Result<Schedule> ScheduleOver(const TrainConfig& config, std::int64_t steps);

// Returns whether the pipeline must drain for a checkpoint of such a run. True without a flush, and
// if a step may be rolled back in the next one.
bool DrainsForCheckpoints(const TrainConfig& config, const Schedule& schedule);

}  // namespace penstock
