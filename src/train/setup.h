// Chooses what a configuration leaves open: ranks, chunks and the schedule. No torch here.
#pragma once

#include "base/result.h"
#include "schedule/schedule.h"
#include "train/config.h"

namespace penstock {

// Returns the number of cores that this process may use.
int Cores();

// Returns the run's schedule, which is valid, and stores the choices in `config.pipeline`.
// Automatic ranks: the largest number from 2 to 4 that `cores` allow and that divides the stages
// (at least 2). Automatic chunks: stages divided by ranks. Automatic schedule: 1f1b, or interleaved
// if there are chunks. The shape of a CSV takes precedence. Rejects an invalid schedule with its
// first fault, and schedules that training does not support.
//
// Without a flush, the schedule streams over several steps: the whole run, but at most a few
// thousand microbatches, after which the pipeline drains once.
Result<Schedule> ChooseSchedule(TrainConfig& config, int cores);

// Returns the chosen schedule over another number of steps, for one without a flush. Requires:
// ChooseSchedule has filled in the configuration.
Result<Schedule> ScheduleOver(const TrainConfig& config, std::int64_t steps);

// Records in the schedule which stages share parameters of the configured model. Rejects schedules
// whose stages step at different times. ChooseSchedule calls it.
Status SetShared(const TrainConfig& config, Schedule& schedule);

// Returns the tokens of each slice of a sequence: as configured, else equal. Requires:
// ChooseSchedule.
std::vector<std::int64_t> SliceLengths(const TrainConfig& config);

// Returns whether checkpoints of such a run require a drained pipeline: without a flush, or if a
// step may be rolled back in the next one.
bool EmptiesForCheckpoints(const TrainConfig& config, const Schedule& schedule);

}  // namespace penstock
