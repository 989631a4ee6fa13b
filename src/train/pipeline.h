// Pipeline: a model as the stages that a schedule's ranks run, each with its optimizer.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "schedule/schedule.h"
#include "train/config.h"
#include "train/data.h"
#include "train/language_model.h"
#include "train/optimizer.h"
#include "train/torch_stage.h"

namespace penstock {

struct Pipeline {
  LanguageModel model;  // the stages' modules: trained in place
  std::vector<std::unique_ptr<TorchStage>> stages;
  std::shared_ptr<LearningRate> rate;  // of all stages; may be changed while no rank runs

  std::vector<Stage*> pointers() const;  // as RunRanks takes them
  const TorchStage& last() const { return *stages.back(); }
};

// Microbatch `row` of a step holds samples row * batch to (row + 1) * batch - 1 of the step: the
// same text however the step is cut. Its tensors are made once and filled again every step.
BatchSource MakeBatchSource(const Sampler& sampler, const TrainConfig& config);

// `config.pipeline` is as ChooseSchedule left it.
Result<Pipeline> BuildPipeline(const TrainConfig& config, const Schedule& schedule,
                               const BatchSource& source);

}  // namespace penstock
