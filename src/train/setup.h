// Chooses what a configuration leaves open: ranks, chunks and the schedule. No torch here.
#pragma once

#include "base/result.h"
#include "schedule/schedule.h"
#include "train/config.h"

namespace penstock {

// Cores that this process may use.
int Cores();

// The run's schedule, valid; `config.pipeline` then holds what was chosen. Automatic ranks: the
// largest number from 2 to 4 that `cores` allow and that divides the stages (2 at least);
// automatic chunks: stages over ranks; automatic schedule: 1f1b, or interleaved with chunks.
// A CSV's own shape wins. Refuses an invalid schedule with its first fault, and what training does
// not do.
//
// Without a flush the schedule streams over several steps: all of the run, but at most some
// thousand microbatches, behind which the pipeline drains once.
Result<Schedule> ChooseSchedule(TrainConfig& config, int cores);

// The chosen schedule over another number of steps, for one without a flush. Requires a
// configuration that ChooseSchedule has filled in.
Result<Schedule> ScheduleOver(const TrainConfig& config, std::int64_t steps);

// Notes in the schedule which stages share parameters of the configured model. Refuses schedules
// whose stages step at times of their own. ChooseSchedule does it.
Status SetShared(const TrainConfig& config, Schedule& schedule);

// Tokens of each slice of a sequence: as configured, else all alike. Requires: ChooseSchedule.
std::vector<std::int64_t> SliceLengths(const TrainConfig& config);

// Whether a checkpoint of such a run is only to be had with the pipeline empty: without a flush,
// or where a step may be taken back in the next.
bool EmptiesForCheckpoints(const TrainConfig& config, const Schedule& schedule);

}  // namespace penstock
