// The batches that the stages of a run read.
#pragma once

#include <memory>

#include "config/train_config.h"
#include "model/context_parallel.h"
#include "train/data/data.h"
#include "train/run/run_context.h"
#include "train/stage/torch_stage.h"

namespace penstock {

// Returns the batches of a run. Microbatch n of a step consists of samples n * batch to
// (n + 1) * batch - 1 of the step, so the text of a step does not depend on the schedule. With
// slices, a microbatch index is a range of tokens of these samples (Schedule::slices). The tensors
// are allocated once and filled again every step.
BatchSource MakeBatchSource(std::shared_ptr<const SampleSource> samples, const TrainConfig& config);
// Returns a source that reads a copy of the sampler.
BatchSource MakeBatchSource(const Sampler& sampler, const TrainConfig& config);
// Returns a source without tokens or targets if no stage of this process reads them.
BatchSource MakeBatchSource(std::shared_ptr<const SampleSource> samples, const RunContext& run);

// Returns a source of the tokens that a rank has of the samples of another one. Targets of padding
// do not count.
BatchSource OfContextRank(const BatchSource& whole, const ContextPlace& place);

}  // namespace penstock
