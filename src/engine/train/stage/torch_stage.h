// TorchStage: a model's stage on compiled graphs, as the executor runs it.
//
// The module is captured once into a joint graph, which is split into forward and backward and
// bound to flat instruction lists. No autograd runs in a step. Threads: may be created on any
// thread, then used by a single one.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/layout.h"
#include "collective/collective_count.h"
#include "graph/analysis/node_costs.h"
#include "graph/compile.h"
#include "model/tensor_parallel.h"
#include "model_spec/model_config.h"
#include "runtime/stage.h"
#include "runtime/versions.h"
#include "schedule/action.h"
#include "train/weights/plane_sums.h"

namespace penstock {

class ActivationPool;
class C10dRun;
class DeviceQueue;
class RankGroup;
class PeerCopies;
struct RankRecorder;
struct RankShards;
class StageModule;
class TorchVocabulary;

// The batches that stages read: tokens for the first stage, targets for the last one. Both are
// int64 tensors [batch, sequence]. Called on the thread of the stage's rank.
struct BatchSource {
  std::function<at::Tensor(std::int64_t step, int microbatch)> tokens;
  std::function<at::Tensor(std::int64_t step, int microbatch)> targets;
  // Returns a source of the same batches for another thread. May be empty; then every rank with a
  // shard of the vocabulary uses this one.
  std::function<BatchSource()> fork = {};
  // For stages that read several tensors: fills `to`, in place of tokens or targets. May be empty.
  using ReadSeveral =
      std::function<void(std::int64_t step, int microbatch, std::span<at::Tensor> to)>;
  ReadSeveral all_inputs = {};
  ReadSeveral all_targets = {};
  // Takes what a last stage reports of a microbatch (StageModule::LossAndReports). May be empty.
  std::function<void(std::int64_t step, int microbatch, std::span<at::Tensor> reports)>
      take_reports = {};
  // Returns which shape the tensors of a microbatch have: a number of TorchStage::AddShape, or 0
  // for the shape of the stage's examples. Empty: all have that one.
  std::function<std::int64_t(std::int64_t step, int microbatch)> shape = {};

  // Set contiguous tensors.
  void ReadInputs(std::int64_t step, int microbatch, std::span<at::Tensor> to) const {
    Read(all_inputs, tokens, step, microbatch, to);
  }
  void ReadTargets(std::int64_t step, int microbatch, std::span<at::Tensor> to) const {
    Read(all_targets, targets, step, microbatch, to);
  }

 private:
  static void Read(const ReadSeveral& several,
                   const std::function<at::Tensor(std::int64_t, int)>& single, std::int64_t step,
                   int microbatch, std::span<at::Tensor> to) {
    if (several) {
      several(step, microbatch, to);
    } else {
      to.front() = single(step, microbatch);
    }
    for (at::Tensor& tensor : to) {
      if (!tensor.is_contiguous()) tensor = tensor.contiguous();
    }
  }
};

struct StageExamples {
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> targets = {};  // of a last stage
};

struct NamedParameter;

// The calls to a stage's optimizer other than updates. To roll back a step, `save` copies what an
// update of the parameters changes, and `restore` restores the last copy bit for bit. `skip` is
// called in place of a skipped update.
struct OptimizerHooks {
  std::function<void(const std::vector<NamedParameter>& parameters)> save;
  std::function<void()> restore;
  std::function<void()> skip;
};

// A parameter of the stage that other stages of its chain share.
struct SharedGradient {
  std::string parameter;
  int holder = 0;   // index of the stage among the holders
  int holders = 2;  // number of holders
};

// What the schedule says about a stage. Microbatch indices count the slices of microbatches.
struct StageSchedule {
  bool first = false;
  bool last = false;
  int microbatches = 1;  // microbatch indices per step on this stage
  int steps = 1;         // Schedule::steps
  WeightPolicy weights = WeightPolicy::kFlush;
  StageVersions versions;  // of the policy, see VersionsOf
  // By microbatch index: whether F keeps only its inputs because a RECOMPUTE follows. Empty: none.
  std::vector<bool> recomputed;

  // Whether each microbatch has its own update, from the gradient of its own loss.
  bool updates_each_microbatch() const { return weights == WeightPolicy::kStashed; }
};

// The tokens of the sequences of which a stage gets all or a part. At most one of the lists is set;
// without any, all sequences have the tokens of the examples.
struct SequenceLengths {
  // Tokens of each slice of a microbatch. Microbatch index i is slice i % slices() and reads the
  // keys and values of the earlier slices of the same microbatch. Inputs and targets belong to one
  // slice, the examples to the first.
  std::vector<std::int64_t> of_slices;
  // Tokens of the samples of each microbatch of a step, over all replicas. The examples have the
  // longest ones, and the tokens of each tensor along its dimension 1.
  std::vector<std::int64_t> of_microbatches;
  int context_ranks = 1;  // that divide the tokens of each sequence (ContextPlace)

  // Returns the tokens that a rank gets of a sequence or slice with this many.
  std::int64_t OfRank(std::int64_t tokens) const { return ContextTokens(tokens, context_ranks); }
  int slices() const { return std::max(1, static_cast<int>(of_slices.size())); }
  // Returns the different lengths of microbatches, longest first. Each has its own program.
  std::vector<std::int64_t> Distinct() const;
  // Returns the number of programs: one per slice or per length.
  int CountPrograms() const;
};

// The replicas of a stage, and what they divide among themselves.
struct ReplicaOptions {
  int count = 1;  // each runs its own microbatches of a step; chain 0 runs the first ones
  int chain = 0;  // the stage's own
  // Ranges of the parameters whose norms are computed separately (Shards). It divides `count`;
  // consecutive chains have the same shard.
  int shards = 1;
  int zero = 0;  // see UpdateRule. With 1, 1 or `count` shards.
  // The replicas that have the other shards, by shard. Null if zero is 0, or if it is 1 and every
  // replica keeps its masters whole.
  std::shared_ptr<RankGroup> group;
};

// Expert parallelism. RankShards has the group that exchanges tokens.
struct ExpertParallelism {
  int ranks = 1;           // that divide the experts
  std::vector<int> parts;  // by chain: which part of the experts it has; empty if they are whole
  // The parameters that are divided by experts (ModelEntry::is_per_expert); null if none are.
  bool (*is_per_expert)(std::string_view parameter) = nullptr;
};

// Tensor parallelism. RankShards has the group that adds results.
struct TensorParallelism {
  int rank = 0;                                     // in the group
  std::map<std::string, ParameterPart> parts = {};  // PartsOf the module
};

struct GradientOptions {
  // The dtype of their sums, within and across replicas: fp32 or bf16.
  at::ScalarType dtype = at::ScalarType::Float;
  // By index in Schedule::shared; empty if the stage does not have the parameter.
  std::vector<std::optional<SharedGradient>> shared;
  // Whether norms count all parameters. False: all but those with the name of a router bias
  // (IsRouterBias), which says nothing in models of users.
  bool counts_all = false;
  PlaneOptions planes;
};

// The numbers of random ops such as dropout.
struct RandomOptions {
  std::uint64_t seed = 0;     // all stages of a model have the same
  std::int64_t first_op = 0;  // is added to the numbers of the stage's random ops
  // Locked while stages are captured whose code sets the state of torch's generator. See
  // StageSpec::exclusive.
  std::mutex* exclusive_capture = nullptr;
};

// What the stages of a rank share.
struct StageRank {
  std::shared_ptr<RankShards> shards;    // may be null
  std::shared_ptr<ActivationPool> pool;  // where OFFLOAD moves activations; null without OFFLOAD
  // The rank's rows of the embedding and the head, which its first stage trains with its own
  // parameters. Null for the other stages, and unless the vocabulary is sharded.
  std::shared_ptr<TorchVocabulary> vocabulary;
  // The rank's queue on the device that has its tensors; null if that is the CPU.
  std::shared_ptr<DeviceQueue> queue = nullptr;
  // Copies messages from ranks on other devices of this process; null if there are none.
  std::shared_ptr<PeerCopies> peers = nullptr;
  // Records runs as graphs of the device; null unless device_graphs is set.
  std::shared_ptr<RankRecorder> recorder = nullptr;
  // Waits for collectives over groups of torch.distributed; null if stages have none.
  std::shared_ptr<C10dRun> c10d = nullptr;

  c10::Device device() const;
};

struct TorchStageOptions {
  // The module with weights in the dtype of the computation (bf16, for example). The stage captures
  // it in place of the module, and copies the module's weights to it after every step. Null: the
  // module itself.
  std::shared_ptr<StageModule> working;
  // The compiled stage: one program per slice or per length. Null: the stage is captured and
  // compiled now.
  std::shared_ptr<const std::vector<StageProgram>> programs;
  CompileOptions compile;
  StageSchedule schedule;
  SequenceLengths lengths;
  ReplicaOptions replicas;
  ExpertParallelism experts;
  TensorParallelism tensor;
  // They order what a stage computes while its collectives move data. All ranks have the same.
  NodeCosts node_costs;
  GradientOptions gradients;
  RandomOptions random;
  StageRank rank;
  OptimizerHooks optimizer;  // may be empty if no step is rolled back or skipped

  // Returns the index of the program of each microbatch index of a step on this stage.
  std::vector<std::size_t> ProgramsOfMicrobatches() const;
};

// A parameter that a stage updates, or a range of its elements, and the accumulated gradient, which
// has the dtype GradientOptions::dtype and the same shape as the value and is zero when
// a step starts.
struct NamedParameter {
  NamedParameter(std::string parameter, at::Tensor whole, at::Tensor its_gradient)
      : name(std::move(parameter)),
        value(std::move(whole)),
        gradient(std::move(its_gradient)),
        layout(value.sizes().vec()),
        counts(!IsRouterBias(name)) {}

  std::string name;
  at::Tensor value;
  at::Tensor gradient;
  Layout layout;  // which elements of the whole parameter the value has
  // Whether the global gradient norm includes it. A shared parameter counts at its first holder,
  // and a part of a matrix on the first rank that has it.
  bool counts;
  // The rank's part, if the ranks of the tensor group have different ones. Their squared norms are
  // added.
  std::optional<ParameterPart> part = {};
  // Whether the stage computes a gradient for it: false if no output of any shape so far depends on
  // it, so that the gradient is always zero.
  bool has_gradient = true;
  // A part of the gradient, and the shard that has it where replicas shard the optimizer's state.
  struct Part {
    int shard = 0;
    at::Tensor gradient;
  };
  // The parts of a whole gradient whose norms are added by shard; empty: one norm.
  std::vector<Part> parts = {};
};

class TorchStage : public Stage {
 public:
  // Called by Step() with the stage's parameters. Gradients are cleared after it returns.
  using Update = std::function<void(std::vector<NamedParameter>& parameters)>;

  // The examples have the dtypes and the expected shapes of later tensors. `inputs` are tokens for
  // a first stage, else what the previous stage sends; only a last stage has targets. For an input
  // that requires a gradient, the stage sends one back. Messages have the types that the stages'
  // programs for the shape of the microbatch have (BatchSource::shape), or the run fails.
  static Result<std::unique_ptr<TorchStage>> Make(const std::shared_ptr<StageModule>& module,
                                                  const StageExamples& examples, BatchSource source,
                                                  const TorchStageOptions& options, Update update);

  // What the stage updates: its parameters, or the parts of them in its shard.
  virtual std::vector<NamedParameter>& Parameters() = 0;
  // What a checkpoint must set: whole parameters or ranges, and whole casts of them. Then call
  // ReadWeights().
  virtual std::vector<NamedParameter> Restored() = 0;
  // Gather the whole parameters in the module, if they are in shards. Called while no rank runs, on
  // all replicas: first StartGather, then FinishGather, which frees them again unless `keep`.
  virtual void StartGather() = 0;
  virtual void FinishGather(bool keep) = 0;
  // Returns the experts of all ranks that divide them, by parameter, after the two calls.
  virtual const std::vector<NamedTensor>& AllExperts() const = 0;
  // Frees parameters that were gathered and kept. Requires: no rank has run since.
  virtual void DropGathered() = 0;
  // Returns the mean loss of the microbatches of all replicas in the last completed step. Last
  // stages only, else 0.
  virtual double StepLoss() const = 0;
  // Returns the losses that StepLoss averages, by microbatch (or slice) of all replicas.
  virtual std::vector<float> MicrobatchLosses() const = 0;
  // Forgets a step that has failed, as if it had not begun. Returns false if the stage has begun to
  // change its weights or buffers in it. Requires: no rank runs.
  virtual bool ForgetStep(std::int64_t step) = 0;
  // Makes the next step the first of the run: no microbatch reads weights older than the current
  // ones.
  virtual void Restart() = 0;
  // Continues with the module's weights after they were changed outside of an update. Requires: no
  // step has run since.
  virtual void ReadWeights() = 0;
  // Sets what the stage trains to whole parameters, in the order of the module's. Requires: no rank
  // runs.
  virtual void SetWeights(std::span<const at::Tensor> whole) = 0;
  // Returns the bytes that ActivationBytes counts for one microbatch (or slice) between F and B.
  virtual std::int64_t SavedBytes() const = 0;
  // Returns what the collectives of a microbatch's (or slice's) actions move.
  virtual CollectivesOfStage CountedCollectives() const = 0;
  // Adds a program for the microbatches of another shape, compiled with the same options; not with
  // `slices` or `lengths`. Drops it again. Requires: no rank runs; shapes are above 0.
  virtual void AddShape(std::int64_t shape, StageProgram program) = 0;
  virtual void DropShape(std::int64_t shape) = 0;
  // Returns the example inputs of the next stage. Empty for a last stage.
  virtual std::vector<at::Tensor> ExampleOutputs() const = 0;
};

// Returns the seed from which a microbatch's random ops are seeded by their numbers
// (SeedRandomOp). They depend on nothing else, so random numbers are the same for every partition
// into stages, for every schedule and when an action runs again. `microbatch` counts all replicas.
std::uint64_t SeedOfRun(std::uint64_t seed, std::int64_t step, int microbatch);

// Returns what TorchStage captures for a slice or a length, by index: the module and, for a last
// stage, its loss. In the examples of a later slice, the keys and values of the earlier slices
// follow the input.
StageSpec MakeStageSpec(const std::shared_ptr<StageModule>& module, const StageExamples& examples,
                        const TorchStageOptions& options, int program = 0);

}  // namespace penstock
