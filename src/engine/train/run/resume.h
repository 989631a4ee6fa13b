// The start of a run: the first step, or a checkpoint of an interrupted run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "monitor/metrics.h"
#include "tokens/kinds/open_tokenizer.h"
#include "train/checkpoint/checkpoint.h"
#include "train/data/training_data.h"
#include "train/run/pipeline.h"
#include "train/run/run_context.h"

namespace penstock {

struct RunStart {
  std::optional<Checkpoint> checkpoint;  // none: start from the first step
  std::vector<StepMetric> metrics;       // of the steps before it
  std::vector<HeldOutMetric> held_out;   // likewise
  // Checkpoints to try if this one is damaged, best first.
  std::vector<std::string> others;
  // The errors of damaged checkpoints.
  std::vector<std::string> damaged;

  std::int64_t step() const { return checkpoint ? checkpoint->info.step : 0; }
  double seconds() const { return checkpoint ? checkpoint->info.seconds : 0; }
};

// Finds the start that `config.resume` requests. For a folder, uses the newest complete checkpoint
// that all processes can open: its files exist and have the right sizes. Logs the others and
// differences in the configuration. Called on all processes; process 0 lists the folder.
// Errors: kNotFound if there is no checkpoint (except for "auto"). kInvalidArgument if none can be
// opened; if the checkpoint belongs to another model, was trained with another tokenizer than
// `tokenizer`, lacks the optimizer state or has more steps than the run; or if a run that writes
// checkpoints would start in the folder of another.
Result<RunStart> FindStart(const RunContext& run, const OpenedTokenizer& tokenizer);

// Restores the pipeline from the start's checkpoint; does nothing if there is none. Each process
// reads and verifies only what its own stages need. If that is damaged on any process, all
// processes use the checkpoint before, which replaces the one in `start`. Called on all processes.
// Errors: as FindStart.
Status RestoreStart(const RunContext& run, Pipeline& pipeline, RunStart& start);

// Makes the samples continue after those that the start's checkpoint has consumed, so that none is
// trained on twice or skipped, whatever the batch size and the datasets of this run are. Called on
// all processes, before the first step.
void ContinueData(const RunContext& run, const RunStart& start, const TrainingData& data);

}  // namespace penstock
