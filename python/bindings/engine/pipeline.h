// Pipeline: the stages of a Python model on this process's ranks of a schedule.
//
// Threads: one at a time, which holds the GIL. Build and Run release it while they work.
// Errors: every method throws std::runtime_error with a one-line message.
#pragma once

#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/engine/captures.h"
#include "bindings/engine/python_stage.h"
#include "bindings/engine/watch.h"
#include "config/train_config.h"
#include "runtime/executor/session.h"
#include "runtime/measure/trace.h"
#include "runtime/processes/collectives.h"
#include "runtime/processes/local_ranks.h"
#include "runtime/processes/process_group.h"
#include "runtime/stage.h"
#include "schedule/schedule.h"
#include "schedule/update_rule.h"
#include "train/stage/stage_assembly.h"
#include "train/stage/torch_stage.h"

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

// What Build compiles a stage from.
struct StageParts {
  StageFunctions functions;
  TensorsByName parameters;  // that it trains, as forward reads them
  // The tensors that are updated, in the same order: the parameters, or copies of them for another
  // chain or for a parameter that an earlier stage has too.
  Tensors masters;
  // What the stage computes with, in the same order: casts of the masters. Empty: the masters.
  Tensors working;
  TensorsByName state;                                // see StageModule::StateTensors
  Tensors inputs;                                     // examples
  Tensors targets;                                    // examples; empty unless it is a last stage
  std::vector<std::optional<SharedGradient>> shared;  // by index in SetShared
  TorchStage::Update update;
  std::function<void()> after_step;  // called on the rank's thread; may be empty
};

// What BuildShape and CaptureShape take a stage from again.
struct StageSource {
  TensorsByName parameters, state;
  TorchStageOptions options;

  std::shared_ptr<PythonStage> ModuleOf(StageFunctions functions) const;
};

// Inputs and targets of a step: tensors of the whole batch.
using Batch = std::pair<Tensors, Tensors>;

// The timeline of a step on one rank: spans of the actions of its lane, in seconds.
struct RankTimes {
  int rank = 0;
  std::vector<double> starts, ends;
};

// What Python checks of a tensor of a batch.
struct TensorKind {
  std::vector<std::int64_t> sizes;
  at::ScalarType dtype;
  at::Device device;
  at::Layout layout;
  bool is_inference, requires_grad;

  explicit TensorKind(const at::Tensor& tensor);
  bool Fits(const at::Tensor& tensor) const;
};

struct Autocast {
  bool enabled = false;
  at::ScalarType dtype = at::kFloat;

  static Autocast OfThread(c10::Device device);
  friend bool operator==(const Autocast&, const Autocast&) = default;
};

class EnginePipeline {
 public:
  // `processes` is null for a single process.
  EnginePipeline(Schedule schedule, PipelineOptions options,
                 std::shared_ptr<ProcessGroup> processes, const LocalRanks& ranks);
  ~EnginePipeline();
  EnginePipeline(const EnginePipeline&) = delete;
  EnginePipeline& operator=(const EnginePipeline&) = delete;

  // Declares which stages of the model hold each shared parameter, before the first Build.
  void SetShared(std::vector<std::vector<int>> stages);
  // Captures a stage without compiling it, as Build or BuildShape would. Stages of a chain are
  // captured in order. Returns examples of its outputs.
  Tensors Capture(int stage, const StageParts& parts);
  Tensors CaptureShape(int stage, StageFunctions functions, Tensors inputs, Tensors targets);
  // Forgets all captures.
  void BeginCaptures() { captures_.Clear(); }
  // Returns where the capture of a stage of the model differs from what was built: by BuildShape if
  // that program has no number yet, else by Build. Requires: both exist.
  std::optional<CaptureDifference> FindDifference(int model_stage) const;
  // Whether the other one was built from equal captures.
  bool IsLike(const EnginePipeline& other) const;
  // Compiles a stage. Stages of a chain are built in order. Returns examples of its outputs.
  Tensors Build(int stage, StageParts parts);
  // Returns what a built stage updates: the names of parameters, and their values, which are flat
  // ranges of them if replicas shard the optimizer's state, with the first element of each.
  std::vector<std::tuple<std::string, at::Tensor, std::int64_t>> Updated(int stage) const;
  // Compiles a built stage for another shape of its inputs. Nothing else changes until AddShape.
  // Returns examples of its outputs.
  Tensors BuildShape(int stage, StageFunctions functions, Tensors inputs, Tensors targets);
  // Gives the programs that BuildShape has compiled since the last call to their stages, under a
  // number above 0, or drops a number's programs. DropBuilt drops programs without a number.
  void AddShape(std::int64_t shape);
  void DropShape(std::int64_t shape);
  void DropBuilt() { built_.clear(); }

  // Runs a step for each batch, whose tensors the microbatches of all chains divide equally along
  // dimension 0, and the slices of a microbatch along dimension 1. Those without dimensions belong
  // to every microbatch. A rank begins a step before the others have ended the one before. `shapes`
  // has the number of the shape of each batch's microbatches, one for all or one per microbatch; 0
  // is Build's. Returns the mean losses on every process.
  std::vector<double> Run(std::vector<Batch> batches,
                          std::vector<std::vector<std::int64_t>> shapes);

  // Sets what must be unchanged for a step to be like the last one.
  void SetWatches(std::vector<std::shared_ptr<Watch>> watches) { watches_ = std::move(watches); }
  // Whether these are single tensors (or no targets) of the same shapes and kinds as in the last
  // step, under the same autocast.
  bool FitsLast(const nb::object& inputs, const nb::object& targets) const;
  // Whether all batches have tensors of the shapes and kinds of the last step's.
  bool AllFitLast(const std::vector<Batch>& batches) const;
  // Returns whether nothing else changed either, so that the last step's checks, and what
  // optimizers were told, still hold.
  bool IsLikeLast(const nb::object& inputs, const nb::object& targets) const;
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

  // Declares how many of a last stage's reports are metrics, fp32 scalars; the others are outputs.
  void SetMetrics(int metrics) { metrics_ = metrics; }
  // Returns figures of the last step on every process: the norm of all gradients (NaN without
  // UpdateRule::needs_norm), the losses by microbatch, and the metrics of each
  // microbatch. Empty before the first step.
  const std::vector<double>& Figures() const { return figures_; }
  // Returns the outputs that last stages of this process reported in the last step, by microbatch.
  std::vector<Tensors> LastOutputs() const;

  // Returns the times of the last step on this process's ranks, from the first start on any of
  // them.
  std::vector<RankTimes> Times() const;
  // Activation bytes between F and the backward, by stage; 0 for stages of other processes.
  std::vector<std::int64_t> SavedBytes() const;
  // By rank; null without graphs of the device. They change while a step runs.
  std::vector<std::shared_ptr<RankRecorder>> DeviceGraphs() const { return assembly_.recorders(); }
  // Returns the text of the graphs that F, I and W of a stage of the model run.
  std::string GraphText(int model_stage) const;

 private:
  TorchStageOptions OptionsOf(int stage, const StageParts& parts) const;
  // Captures the module with these options unless its stage of the model has been captured.
  Tensors CaptureModule(int stage, const std::shared_ptr<PythonStage>& module,
                        const StageExamples& examples, const TorchStageOptions& options);
  // Starts the threads of the ranks unless this process has them.
  Status Start();
  // Makes the pipeline usable after a failed run if nothing has been updated in it. Not with
  // several processes or steps.
  bool ForgetStep();
  // Notes what FitsLast compares with.
  void Remember(const Batch& batch);
  // Throws if several replicas would update buffers.
  void CheckBuffers(int stage, const StageProgram& program) const;
  // Called on a rank's thread.
  void AfterStep(int rank, std::int64_t step);
  c10::Device DeviceOf(int stage) const;
  bool IsLastOfRun(std::int64_t step) const { return step - step_ == std::ssize(batches_) - 1; }
  // Returns the losses of the process that runs the last stage, and sets figures_. Collective.
  Result<std::vector<double>> FromLastStage();
  // Returns Figures() of this process, NaN where it has none; empty without a last stage.
  std::vector<double> OwnFigures() const;

  Schedule schedule_;
  PipelineOptions options_;
  std::shared_ptr<ProcessGroup> processes_;
  Collectives collectives_;
  LocalRanks ranks_;
  StageAssembly assembly_;
  std::vector<std::unique_ptr<TorchStage>> stages_;                         // by stage
  std::vector<StageSource> sources_;                                        // by stage
  std::vector<std::shared_ptr<const std::vector<StageProgram>>> programs_;  // by stage of the model
  std::map<std::size_t, StageProgram> built_;  // by stage of the model: of BuildShape
  Captures captures_;
  std::vector<std::vector<std::function<void()>>> after_step_;  // by rank
  std::vector<Batch> batches_;                                  // of the run
  std::vector<std::vector<std::int64_t>> shapes_;               // of the run, see Run
  std::vector<double> losses_;  // of the run, by step; of the thread of the last stage's rank
  // What the last step of the run reports. Each is set on the thread of a last stage's rank.
  double last_norm_ = std::numeric_limits<double>::quiet_NaN();
  std::vector<float> last_losses_;
  std::vector<Tensors> reports_;  // by microbatch (or slice)
  int metrics_ = 0;               // reports of a microbatch that are metrics
  std::vector<double> figures_;
  std::unique_ptr<Trace> trace_;         // of the last step
  std::unique_ptr<RunSession> session_;  // null before the first step and after a failed one
  std::vector<TensorKind> last_kinds_;   // of the last step's inputs and targets
  Autocast last_autocast_;
  std::vector<std::shared_ptr<Watch>> watches_;
  int process_ = 0;                     // the process whose threads session_ has
  std::int64_t step_ = 0;               // the number of the next run's first step
  std::optional<std::string> failure_;  // of an earlier step
};

}  // namespace penstock::python
