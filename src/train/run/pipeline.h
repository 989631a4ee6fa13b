// Pipeline: a model as the stages that a schedule's ranks run, each with its optimizer.
#pragma once

#include <atomic>
#include <cstdio>
#include <memory>
#include <vector>

#include "base/result.h"
#include "runtime/hosts/hosted_ranks.h"
#include "schedule/schedule.h"
#include "train/checkpoint/checkpoint.h"
#include "train/config.h"
#include "train/data/data.h"
#include "train/evaluation/language_model.h"
#include "train/optimizer/optimizer.h"
#include "train/stage/torch_stage.h"

namespace penstock {

struct Pipeline {
  LanguageModel model;                  // the stages' modules: trained in place
  std::vector<LanguageModel> replicas;  // of the other chains, equal to `model` behind every step
  // By stage; null for those of other hosts.
  std::vector<std::unique_ptr<TorchStage>> stages;
  std::vector<std::shared_ptr<AdamW>> optimizers;
  std::vector<SharedParameter> shared;  // parameters that several stages hold
  std::shared_ptr<LearningRate> rate;   // of all stages; may be changed while no rank runs

  std::vector<Stage*> pointers() const;  // as RunRanks takes them
  const TorchStage& last() const { return *stages.back(); }
};

// Microbatch n of a step holds samples n * batch to (n + 1) * batch - 1 of the step: the same text
// however the step is cut. With slices a row is a piece of these samples (Schedule::slices). Its
// tensors are made once and filled again every step.
BatchSource MakeBatchSource(const Sampler& sampler, const TrainConfig& config);
// The same with what the stages of these ranks read.
BatchSource MakeBatchSource(const Sampler& sampler, const TrainConfig& config,
                            const Schedule& schedule, const HostedRanks& ranks);

// `config.pipeline` is as ChooseSchedule left it. Weights and optimizers are as the checkpoint has
// them, if one is given. Stages that are alike are captured once. Where it takes long, lines on
// `log`, if there is one, say how far it is. Returns soon once `stop` is set; the pipeline then
// lacks stages.
Result<Pipeline> BuildPipeline(const TrainConfig& config, const Schedule& schedule,
                               const BatchSource& source, const Checkpoint* from = nullptr,
                               const std::atomic<bool>* stop = nullptr, std::FILE* log = nullptr);
// The same with the stages of this host's ranks alone.
Result<Pipeline> BuildPipeline(const TrainConfig& config, const Schedule& schedule,
                               const HostedRanks& ranks, const BatchSource& source,
                               const Checkpoint* from, const std::atomic<bool>* stop,
                               std::FILE* log);

// What a checkpoint of a run in progress holds of the stages of one rank. The first stage that
// holds a shared parameter saves it.
NamedState RankState(const Pipeline& pipeline, const Schedule& schedule, int rank);

}  // namespace penstock
