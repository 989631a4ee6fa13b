// Pipeline: the stages of a model as a schedule's ranks run them, each with its optimizer.
#pragma once

#include <memory>
#include <vector>

#include "base/index.h"
#include "base/result.h"
#include "config/train_config.h"
#include "schedule/schedule.h"
#include "train/checkpoint/checkpoint.h"
#include "train/data/data.h"
#include "train/evaluation/language_model.h"
#include "train/optimizer/optimizer.h"
#include "train/run/batch_source.h"
#include "train/run/run_context.h"
#include "train/shards/rank_shards.h"
#include "train/stage/torch_stage.h"
#include "train/stage/torch_vocabulary.h"

namespace penstock {

struct Pipeline {
  LanguageModel model;                  // the stages' modules, trained in place
  std::vector<LanguageModel> replicas;  // of the other chains; equal to `model` after every step
  // By stage; null for stages of other processes.
  std::vector<std::unique_ptr<TorchStage>> stages;
  std::vector<std::shared_ptr<Optimizer>> optimizers;
  std::vector<std::shared_ptr<RankShards>>
      rank_shards;  // by rank; null for ranks of other processes
  c10::Device device = c10::kCPU;
  std::vector<std::shared_ptr<RankRecorder>> recorders;  // by rank; null without graphs
  // By rank; null for ranks of other processes, and empty unless the vocabulary is sharded.
  std::vector<std::shared_ptr<TorchVocabulary>> vocabulary;
  std::vector<SharedParameter> shared;  // parameters that several stages hold
  std::vector<LayerRange> ranges;       // by stage of the model
  // By stage of the model: the stage that trains while GatherWeights has replaced it, else null.
  std::vector<std::shared_ptr<StageModule>> replaced;
  // The other planes (Planes), in order, each with its parts of the matrices. They have one replica
  // each of what is not divided.
  std::vector<Pipeline> planes;
  bool saves = true;  // whether checkpoints have the parts of this plane, or those of an equal one
  int zero = 0;       // see UpdateRule
  int replicas_per_shard = 1;
  std::shared_ptr<LearningRate> rate;  // of all stages; may be changed only while no rank runs

  // Returns a plane by its number: this one is the first.
  const Pipeline& Plane(int plane) const { return plane == 0 ? *this : planes[Index(plane) - 1]; }
  // The stages of all planes, for RunRanks. Null for stages of other processes.
  std::vector<Stage*> pointers() const;
  const TorchStage& last() const { return *stages.back(); }
  // As TorchStage::StepLoss. Requires: the rank of the last stage is on this process.
  double StepLoss() const;
  // Whether the replica of the stage in this chain is the first one that has its shard. The others
  // are equal to it.
  bool IsFirstOfShard(int chain) const { return chain % replicas_per_shard == 0; }
};

// Builds the stages of this process's ranks. Captures identical stages once. Logs its progress
// every few seconds if there is a log. After a stop, returns soon with a pipeline that lacks
// stages. Every process calls it at the same place of its start. The group of processes must
// outlive the pipeline.
Result<Pipeline> BuildPipeline(const RunContext& run, const BatchSource& source);
// Builds all stages in a single process, without a log.
Result<Pipeline> BuildPipeline(const TrainConfig& config, const Schedule& schedule,
                               const BatchSource& source);

// Gathers parameters that are in shards, and experts and matrices that ranks divide, so that
// `model` (with `replicas`, also each replica, but without the experts of other ranks) has all of
// this process's (matrices: of its ranks of the first plane). Every process calls it, while no rank
// runs. Throws std::runtime_error if another
// process is lost.
void GatherWeights(Pipeline& pipeline, const Schedule& schedule, bool replicas = false);

// Frees what GatherWeights gathered, so that the steps continue. Called while no rank runs.
void DropGatheredWeights(Pipeline& pipeline);

// Returns what a checkpoint saves of the stages of one rank of all planes (MeshOfPlanes). Of the
// stages that share a parameter, the first one saves it, and so does the first plane that has it.
NamedState RankState(const Pipeline& pipeline, const Schedule& schedule, int mesh_rank);

// Sets the weights and the optimizer state of this process's stages, with all copies of replicas
// and shared parameters, and continues after the checkpoint's step. Reads nothing else of the
// checkpoint. Optimizer state that the checkpoint does not have, because the optimizer's settings
// were different, starts as in a new run; returns the number of such tensors. Requires: no rank has
// run since BuildPipeline. Errors: as Restore; the pipeline is then unusable until another
// checkpoint is restored.
Result<int> RestorePipeline(Checkpoint& from, Pipeline& pipeline);

}  // namespace penstock
