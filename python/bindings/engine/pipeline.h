// Pipeline: the stages of a Python model on this process's ranks of a schedule, and the runs of
// steps on them.
//
// Threads: one at a time, which holds the GIL. Build and Run release it while they work.
// Errors: every method throws std::runtime_error with a one-line message.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings/engine/built_stages.h"
#include "bindings/engine/last_batch.h"
#include "bindings/engine/mesh_run.h"
#include "bindings/engine/step_batches.h"
#include "bindings/engine/step_figures.h"
#include "config/train_config.h"
#include "runtime/executor/session.h"
#include "runtime/measure/trace.h"
#include "runtime/processes/collectives.h"
#include "runtime/processes/local_ranks.h"
#include "runtime/processes/process_group.h"
#include "schedule/schedule.h"
#include "schedule/update_rule.h"

namespace penstock::python {

struct PipelineOptions {
  ParallelConfig parallel;  // only `data` and `zero` matter
  DeviceUse devices = {};   // of the weights, and where stages run
  TorchStageOptions stage;  // of all stages; the schedule and Build add the rest
  UpdateRule update;
  int threads = 1;               // intra-op threads of each rank
  double watchdog = 60;          // seconds without progress after which a step fails
  std::int64_t first_step = 0;   // the number of the first step
  std::string offload_folder{};  // for OFFLOAD

  PipelineOptions();
};

// The timeline of a step on one rank: spans of the actions of its lane, in seconds.
struct RankTimes {
  int rank = 0;
  std::vector<double> starts, ends;
};

class EnginePipeline {
 public:
  // `processes` is null for a single process, and `mesh` without a mesh.
  EnginePipeline(Schedule schedule, PipelineOptions options,
                 std::shared_ptr<ProcessGroup> processes, const LocalRanks& ranks,
                 std::unique_ptr<MeshRun> mesh);
  ~EnginePipeline();
  EnginePipeline(const EnginePipeline&) = delete;
  EnginePipeline& operator=(const EnginePipeline&) = delete;

  // Declares which stages of the model hold each shared parameter, before the first Build.
  void SetShared(std::vector<std::vector<int>> stages);
  // As BuiltStages::Build.
  Tensors Build(int stage, StageParts parts);
  BuiltStages& built() { return built_; }
  LastBatch& last_batch() { return last_batch_; }

  // Runs a step for each batch, whose tensors the microbatches of all chains divide equally along
  // dimension 0, and the slices of a microbatch along dimension 1. Those without dimensions belong
  // to every microbatch. A rank begins a step before the others have ended the one before. `shapes`
  // has the number of the shape of each batch's microbatches, one for all or one per microbatch; 0
  // is Build's. Returns the mean losses on every process.
  std::vector<double> Run(std::vector<Batch> batches,
                          std::vector<std::vector<std::int64_t>> shapes);

  // Gathers masters that are in shards, in the tensors that Build got. DropGathered frees them
  // again. Every process calls them, between runs.
  void Gather();
  void DropGathered();
  // Sets the masters of a stage to whole tensors.
  void SetWeights(int stage, const Tensors& whole);
  // Casts the masters of all stages, which may have been changed in place, to what is computed
  // with.
  void ReadWeights();
  // Sets how many steps have run, on which random numbers depend.
  void SetSteps(std::int64_t steps);

  void SetMetrics(int metrics) { figures_.SetMetrics(metrics); }
  // Returns figures of the last step on every process: the norm of all gradients (NaN without
  // UpdateRule::needs_norm), the losses by microbatch, and the metrics of each
  // microbatch. Empty before the first step.
  const std::vector<double>& Figures() const { return figures_.values(); }
  // Returns the outputs that last stages of this process reported in the last step, by microbatch.
  std::vector<Tensors> LastOutputs() const { return figures_.OutputsOf(batches_.reports()); }

  // Returns the times of the last step on this process's ranks, from the first start on any of
  // them.
  std::vector<RankTimes> Times() const;
  // Activation bytes between F and the backward, by stage; 0 for stages of other processes.
  std::vector<std::int64_t> SavedBytes() const;
  // By rank; null without graphs of the device. They change while a step runs.
  std::vector<std::shared_ptr<RankRecorder>> DeviceGraphs() const {
    return built_.builder().recorders();
  }

 private:
  RunOptions OptionsOfRun();
  // Starts the threads of the ranks unless this process has them.
  Status Start();
  // Makes the pipeline usable after a failed run if nothing has been updated in it. Not with
  // several processes or steps.
  bool ForgetStep();
  // Called on a rank's thread.
  void AfterStep(int rank, std::int64_t step);
  // Whether this process has a last stage of any chain.
  bool has_last_stage() const;

  Schedule schedule_;
  PipelineOptions options_;
  std::shared_ptr<ProcessGroup> processes_;
  std::unique_ptr<MeshRun> mesh_;
  Collectives collectives_;
  LocalRanks ranks_;
  BuiltStages built_;
  StepBatches batches_;                                         // of the run
  std::vector<std::vector<std::function<void()>>> after_step_;  // by rank
  std::vector<double> losses_;  // of the run, by step; of the thread of the last stage's rank
  OwnFigures own_;              // of the run's last step
  StepFigures figures_;
  LastBatch last_batch_;
  std::unique_ptr<Trace> trace_;         // of the last step
  std::unique_ptr<RunSession> session_;  // null before the first step and after a failed one
  int process_ = 0;                      // the process whose threads session_ has
  std::int64_t step_ = 0;                // the number of the next run's first step
  std::optional<std::string> failure_;   // of an earlier step
};

}  // namespace penstock::python
