// The start of a run: the first step, or a checkpoint of an interrupted run.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/hosts/collectives.h"
#include "train/checkpoint/checkpoint.h"
#include "train/config.h"
#include "train/log/metrics.h"

namespace penstock {

struct RunStart {
  std::optional<Checkpoint> checkpoint;  // none: start from the first step
  std::vector<StepMetric> metrics;       // of the steps before it

  std::int64_t step() const { return checkpoint ? checkpoint->info.step : 0; }
  double seconds() const { return checkpoint ? checkpoint->info.seconds : 0; }
};

// The run's folder.
std::string RunPath(const TrainConfig& config);

// Finds the start that `config.resume` requests. For a folder, uses the newest checkpoint that is
// complete. Damaged ones, and differences in the configuration, are named on `log`.
// Errors: kNotFound if there is no checkpoint (except for "auto"); kInvalidArgument if none is
// complete, or it is of another model, lacks the optimizer state or has more steps than the run;
// and if a run that writes checkpoints would start among those of another.
Result<RunStart> FindStart(const TrainConfig& config, std::FILE* log);
// The same on all hosts: the leader finds the checkpoint, all read it.
Result<RunStart> FindStart(Collectives& hosts, const TrainConfig& config, std::FILE* log);

// Moves those of the run's own checkpoints that `start` does not continue out of the way: those of
// later steps, or all of them if the run starts elsewhere. Otherwise the next resume would take one
// of them for the newest of this run. Logs where they are.
Status SetAsideSuperseded(const TrainConfig& config, const RunStart& start, std::FILE* log);

}  // namespace penstock
