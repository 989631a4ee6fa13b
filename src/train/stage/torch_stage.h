// TorchStage: a model's stage as the executor runs it, on compiled graphs.
//
// The module is captured once into a joint graph, cut into forward and backward, and bound to flat
// instruction lists; no autograd runs in a step. Threads: made anywhere, then used by one thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/compile.h"
#include "runtime/stage.h"
#include "runtime/versions.h"
#include "schedule/action.h"

namespace penstock {

class ActivationPool;
class StageModule;

// The batch a stage reads from: tokens for a first stage, targets for a last one. Both [batch,
// sequence] int64. Called from the stage's rank's thread.
struct BatchSource {
  std::function<at::Tensor(std::int64_t step, int row)> tokens;
  std::function<at::Tensor(std::int64_t step, int row)> targets;
};

struct StageExamples {
  std::vector<at::Tensor> inputs;
  at::Tensor targets = {};
};

struct NamedParameter;

// What a stage asks of its optimizer beside updates. To roll a step back: `save` keeps what an
// update of the parameters changes, `restore` puts the last kept back, to the last bit. `skip` is
// called in place of an update that is skipped.
struct OptimizerHooks {
  std::function<void(const std::vector<NamedParameter>& parameters)> save;
  std::function<void()> restore;
  std::function<void()> skip;
};

// A parameter of the stage that other stages of its chain hold, too.
struct SharedGradient {
  std::string parameter;
  int holder = 0;   // the stage's place among the holders
  int holders = 2;  // how many there are
};

struct TorchStageOptions {
  // The module with weights in the dtype that is computed in (bf16, say): captured in the module's
  // place, its weights set from the module's after every step. Null: the module itself.
  std::shared_ptr<StageModule> working;
  // The stage, compiled before: one program for each slice; null: it is captured and compiled now.
  std::shared_ptr<const std::vector<StageProgram>> programs;
  bool first = false;
  bool last = false;
  int microbatches = 1;  // of a step, that pass through this stage; with slices: rows
  int mean_over = 0;     // losses and gradients are means over so many; 0: all of a step
  int steps = 1;         // that rows run on over: Schedule::steps
  // Tokens of each piece of a microbatch along its sequences; one piece or none: whole sequences.
  // Row r is piece r % slices(), and reads the keys and values of the rows before it of the same
  // microbatch. Inputs and targets are of one piece, the examples of the first.
  std::vector<std::int64_t> slice_lengths;
  // Replicas of the stage: each takes its own microbatches of a step, chain 0 the first ones.
  int replicas = 1;
  int chain = 0;
  WeightPolicy weights = WeightPolicy::kFlush;
  VersionRule versions;  // of the policy, see VersionsOf
  // By number in Schedule::shared; empty where the stage does not hold the parameter.
  std::vector<std::optional<SharedGradient>> shared;
  OptimizerHooks optimizer;  // empty: no step is rolled back, and nothing notes one that is skipped
  // Bitwise equal to autograd; false lets weight gradients be added up inside the matmul.
  bool exact = true;
  bool fuse = false;             // see CompileOptions
  std::int64_t hold = kHoldAll;  // of a microbatch's activations, see CompileOptions
  std::int64_t hold_for_weight = kHoldAll;
  // Where OFFLOAD moves activations to, one a rank; null: the stage runs no OFFLOAD.
  std::shared_ptr<ActivationPool> pool;
  // By microbatch: whether F keeps its inputs alone, for a RECOMPUTE to come; empty: none.
  std::vector<bool> recomputed;
  std::uint64_t seed = 0;  // of its random ops (dropout); stages of one model differ

  int slices() const { return std::max(1, static_cast<int>(slice_lengths.size())); }
};

// A parameter with the gradient gathered so far (same shape; zero at the start of a step).
struct NamedParameter {
  std::string name;
  at::Tensor value;
  at::Tensor gradient;
  bool counts =
      true;  // in the norm of all gradients: a shared parameter counts at its first holder
};

class TorchStage : public Stage {
 public:
  // Called by Step() with the stage's parameters; gradients are cleared after it returns.
  using Update = std::function<void(std::vector<NamedParameter>& parameters)>;

  // The examples have the dtypes and the expected shapes of what comes: `inputs` (tokens for a
  // first stage, else what the stage before sends) and targets (last stages only). Of an input that
  // requires a gradient the stage sends one back. Inputs of other shapes are captured when they
  // come, once for each shape; messages between processes have the expected ones.
  static Result<std::unique_ptr<TorchStage>> Make(const std::shared_ptr<StageModule>& module,
                                                  const StageExamples& examples, BatchSource source,
                                                  const TorchStageOptions& options, Update update);

  virtual std::vector<NamedParameter>& Parameters() = 0;
  // Mean loss of the microbatches, all replicas' together, of the last step whose update is made;
  // last stages only, else 0.
  virtual double StepLoss() const = 0;
  // The next step is the first of a run again: no row of it reads weights older than now.
  virtual void Restart() = 0;
  // Versions of the weights that are kept, and their bytes.
  virtual int WeightVersions() const = 0;
  virtual std::int64_t WeightVersionBytes() const = 0;
  // Bytes that one microbatch (or slice) holds between F and B: what ActivationBytes counts, known
  // before a run.
  virtual std::int64_t SavedBytes() const = 0;
  // The same between I and W.
  virtual std::int64_t LiveBytes() const = 0;
  // The next stage's example inputs; none for a last stage.
  virtual std::vector<at::Tensor> ExampleOutputs() const = 0;
};

// What a stage's generator starts from when action `op` of microbatch `row` runs: the same numbers
// whatever the schedule, and whenever it is run again.
std::uint64_t SeedOfRun(std::uint64_t stage_seed, std::int64_t step, int row, Op op);

// What TorchStage captures: the module and, for a last stage, its loss. For printing graphs. A
// later slice's examples have the keys and values of those before behind the input.
StageSpec MakeStageSpec(const std::shared_ptr<StageModule>& module, const StageExamples& examples,
                        const TorchStageOptions& options, int slice = 0);

}  // namespace penstock
