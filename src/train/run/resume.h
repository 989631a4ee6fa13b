// Where a run begins: at its start, or behind a checkpoint of one that was interrupted.
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
  std::optional<Checkpoint> checkpoint;  // none: from the start
  std::vector<StepMetric> metrics;       // of the steps before it

  std::int64_t step() const { return checkpoint ? checkpoint->info.step : 0; }
  double seconds() const { return checkpoint ? checkpoint->info.seconds : 0; }
};

// The run's folder.
std::string RunPath(const TrainConfig& config);

// What `config.resume` asks for. Of a folder the newest checkpoint that is whole is taken; damaged
// ones are named on `log`, and so is what differs in the configuration.
// Errors: kNotFound where there is no checkpoint (but for "auto"); kInvalidArgument where none is
// whole, or it is of another model, without the optimizer's state, or behind the last step; and
// where a run that is to make checkpoints would begin among those of another.
Result<RunStart> FindStart(const TrainConfig& config, std::FILE* log);
// The same on all hosts: the leader finds the checkpoint, all read it.
Result<RunStart> FindStart(Collectives& hosts, const TrainConfig& config, std::FILE* log);

// Moves the run's own checkpoints that `start` does not continue out of the way: those of later
// steps, or all where the run begins elsewhere. Otherwise the next resume would take one of them
// for the newest of this run. Notes on `log` where they are.
Status SetAsideSuperseded(const TrainConfig& config, const RunStart& start, std::FILE* log);

}  // namespace penstock
