// BuiltStages: the stages of a Python model on this process's ranks, and what they were captured
// and compiled from.
//
// Threads: one at a time, which holds the GIL. Methods that capture or compile release it.
// Errors: every method throws std::runtime_error with a one-line message.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/engine/captures.h"
#include "bindings/engine/python_stage.h"
#include "config/train_config.h"
#include "runtime/stage.h"
#include "schedule/schedule.h"
#include "train/stage/stage_builder.h"
#include "train/stage/torch_stage.h"

namespace penstock::python {

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
  std::vector<std::optional<SharedGradient>> shared;  // by index in Schedule::shared
  PlaneOptions planes;
  TorchStage::Update update;
  std::function<void()> after_step;  // called on the rank's thread; may be empty
};

class BuiltStages {
 public:
  // `common` are the options of all stages. The schedule and the process's ranks are those that the
  // builder was made for. The schedule must outlive the object.
  BuiltStages(const Schedule& schedule, const ParallelConfig& parallel, TorchStageOptions common,
              std::vector<c10::Device> devices, StageBuilder builder);

  // Captures a stage without compiling it, as Build or BuildShape would. Stages of a chain are
  // captured in order. Returns examples of its outputs.
  Tensors Capture(int stage, const StageParts& parts);
  Tensors CaptureShape(int stage, StageFunctions functions, Tensors inputs, Tensors targets);
  // Forgets all captures.
  void BeginCaptures() { captures_.Clear(); }
  // Returns where the capture of a stage of the model differs from what was built: for the shape
  // with a number above 0; else by BuildShape if that program has no number yet, else by Build.
  // Requires: both exist.
  std::optional<CaptureDifference> FindDifference(int model_stage, std::int64_t shape) const;
  // Whether the other ones were built from equal captures.
  bool AreLike(const BuiltStages& other) const;

  // Compiles a stage. Stages of a chain are built in order. Returns examples of its outputs.
  Tensors Build(int stage, StageParts parts, BatchSource source);
  // Compiles a built stage for another shape of its inputs. Nothing else changes until AddShape.
  // Returns examples of its outputs.
  Tensors BuildShape(int stage, StageFunctions functions, Tensors inputs, Tensors targets);
  // Gives the programs that BuildShape has compiled since the last call to their stages, under a
  // number above 0, or drops a number's programs. DropBuilt drops programs without a number.
  void AddShape(std::int64_t shape);
  void DropShape(std::int64_t shape);
  void DropBuilt() { built_.clear(); }

  // By stage; null for stages of other processes, and before Build.
  const std::vector<std::unique_ptr<TorchStage>>& stages() const { return stages_; }
  std::vector<Stage*> pointers() const;
  const StageBuilder& builder() const { return builder_; }
  // Calls f for each stage of this process.
  template <class Function>
  void ForEach(Function f) const {
    for (const auto& stage : stages_) {
      if (stage) f(*stage);
    }
  }

  // Returns what a built stage updates: the names of parameters, and their values, which are flat
  // ranges of them if replicas shard the optimizer's state, with the first element of each.
  std::vector<std::tuple<std::string, at::Tensor, std::int64_t>> Updated(int stage) const;
  // Returns the text of the graphs that F, I and W of a stage of the model run.
  std::string GraphText(int model_stage) const;
  // Returns what the collectives of the same graphs move, for F, I and W in this order: op, name of
  // the group, calls and bytes.
  using CountedCalls =
      std::vector<std::tuple<std::string, std::string, std::int64_t, std::int64_t>>;
  std::vector<CountedCalls> CountCollectives(int model_stage) const;

 private:
  // What BuildShape and CaptureShape take a stage from again.
  struct Source {
    TensorsByName parameters, state;
    TorchStageOptions options;

    std::shared_ptr<PythonStage> ModuleOf(StageFunctions functions) const;
  };

  TorchStageOptions OptionsOf(int stage, const StageParts& parts) const;
  // Captures the module with these options unless its stage of the model has been captured.
  Tensors CaptureModule(int stage, const std::shared_ptr<PythonStage>& module,
                        const StageExamples& examples, const TorchStageOptions& options);
  // Throws if several replicas would update buffers.
  void CheckBuffers(int stage, const StageProgram& program) const;
  int ModelStage(int stage) const { return schedule_.placement.model_stage(stage); }
  c10::Device DeviceOf(int stage) const { return devices_[schedule_.placement.rank_of(stage)]; }

  const Schedule& schedule_;
  const ParallelConfig parallel_;
  const TorchStageOptions common_;
  const std::vector<c10::Device> devices_;  // by rank
  StageBuilder builder_;
  std::vector<std::unique_ptr<TorchStage>> stages_;
  std::vector<Source> sources_;        // by stage
  std::map<int, StageProgram> built_;  // by stage of the model: of BuildShape
  std::map<std::int64_t, std::map<int, Fingerprint>> added_;  // likewise, by shape: of AddShape
  Captures captures_;
};

}  // namespace penstock::python
