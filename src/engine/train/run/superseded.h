// Files of earlier runs in a run's folder.
#pragma once

#include "base/result.h"
#include "train/run/resume.h"
#include "train/run/run_context.h"

namespace penstock {

// Moves what a new run would mix with its own files to RUN/superseded-N, and logs the folder. If
// the run continues from its own checkpoint: later checkpoints, and the results if they are of a
// later step. Otherwise all files of an earlier run, unless that one was the same run and ended
// before it wrote a checkpoint or a result. Called on the leader, before the first file is written.
Status SetAsideSuperseded(const RunContext& run, const RunStart& start);

}  // namespace penstock
