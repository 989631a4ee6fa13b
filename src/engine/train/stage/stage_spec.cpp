#include "train/stage/stage_spec.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <numeric>
#include <set>
#include <span>

#include "base/index.h"
#include "base/mix_bits.h"
#include "model/model.h"
#include "model/sequence_context.h"
#include "train/stage/torch_stage.h"

namespace penstock {
namespace {

// Enables dropout and similar ops while it exists.
class TrainingMode {
 public:
  explicit TrainingMode(StageModule& module) : module_(module) { module_.train(); }
  ~TrainingMode() { module_.eval(); }
  TrainingMode(const TrainingMode&) = delete;
  TrainingMode& operator=(const TrainingMode&) = delete;

 private:
  StageModule& module_;
};

Status CheckOptions(const TorchStageOptions& options, const StageExamples& examples) {
  if (options.schedule.microbatches < 1) {
    return InvalidArgument("a step needs at least 1 microbatch, not {}",
                           options.schedule.microbatches);
  }
  const auto defined = [](const at::Tensor& tensor) { return tensor.defined(); };
  if (examples.inputs.empty() ||
      !std::all_of(examples.inputs.begin(), examples.inputs.end(), defined)) {
    return InvalidArgument("a stage needs example inputs");
  }
  if (options.schedule.microbatches % options.lengths.slices() != 0) {
    return InvalidArgument("{} microbatch indices are not a multiple of {} slices",
                           options.schedule.microbatches, options.lengths.slices());
  }
  if (options.lengths.slices() > 1 && examples.inputs.size() != 1) {
    return InvalidArgument("a stage with {} slices takes one input, not {}",
                           options.lengths.slices(), examples.inputs.size());
  }
  if (options.programs != nullptr &&
      std::ssize(*options.programs) != options.lengths.CountPrograms()) {
    return InvalidArgument("{} programs were compiled for {} slices or lengths",
                           options.programs->size(), options.lengths.CountPrograms());
  }
  if (options.lengths.slices() > 1 &&
      (options.rank.pool != nullptr || !options.schedule.recomputed.empty())) {
    return InvalidArgument(
        "OFFLOAD and RECOMPUTE cannot be used with slices: later slices read the state of earlier "
        "ones");
  }
  return {};
}

// Also rejects a stage that sends no gradient back although one is required, because the previous
// stages would not be trained.
Status CheckProgram(const StageProgram& program, const StageExamples& examples,
                    const TorchStageOptions& options) {
  const std::size_t count =
      examples.inputs.size() + (options.schedule.last ? examples.targets.size() : 0);
  if (!options.compile.captures_only &&
      ((options.replicas.zero >= 2 && program.reduce_grad.name.empty()) ||
       (options.replicas.zero >= 3 && program.unshard.name.empty()))) {
    return InvalidArgument("the program has no graphs for shards (parallel.zero)");
  }
  if (program.inputs.size() != count) {
    return InvalidArgument("the program has {} inputs, but the stage has {}", program.inputs.size(),
                           count);
  }
  const auto requires_gradient = [](const at::Tensor& input) { return input.requires_grad(); };
  const auto has_gradient = [](const StagePort& input) { return input.has_gradient; };
  if (std::any_of(examples.inputs.begin(), examples.inputs.end(), requires_gradient) &&
      std::none_of(program.inputs.begin(), program.inputs.end(), has_gradient)) {
    return InvalidArgument(
        "the stage's output does not depend on its input, so the previous stages would not be "
        "trained");
  }
  return {};
}

ParameterSharding ShardingOf(const Shards& shards, const TorchStageOptions& options) {
  ParameterSharding sharding;
  sharding.replicas = shards.shards();
  sharding.shard_elements = shards.shard_elements();
  sharding.weights = options.replicas.zero >= 3;
  for (std::size_t i = 0; i < shards.parameters(); ++i) {
    sharding.starts.push_back(shards.sharded(i) ? shards.start(i) : -1);
  }
  return sharding;
}

// Copies outputs that share memory with inputs. A batch source refills its tensors, so the outputs
// of a first stage must not refer to them.
std::vector<at::Tensor> WithoutAliases(std::vector<at::Tensor> outputs,
                                       std::span<const at::Tensor> inputs) {
  for (at::Tensor& output : outputs) {
    for (const at::Tensor& input : inputs) {
      if (output.is_alias_of(input)) output = output.clone();
    }
  }
  return outputs;
}

// Returns the module's outputs for the slice, followed by the slice's keys and values. The last
// slice's are detached, because no later slice computes gradients for them.
std::vector<at::Tensor> RunSlice(StageModule& module, std::span<const at::Tensor> inputs, int slice,
                                 const std::vector<std::int64_t>& lengths) {
  const auto start = std::accumulate(lengths.begin(), lengths.begin() + slice, std::int64_t{0});
  SequenceContext context(slice, inputs.subspan(1), start);
  std::vector<at::Tensor> outputs = {module.ForwardSlice(inputs[0], context)};
  for (const at::Tensor& own : context.Own()) {
    outputs.push_back(slice + 1 == std::ssize(lengths) ? own.detach() : own);
  }
  return outputs;
}

at::Tensor WithTokens(const at::Tensor& example, std::int64_t tokens) {
  if (!example.defined()) return example;
  std::vector<std::int64_t> sizes = example.sizes().vec();
  sizes[1] = tokens;
  const at::Tensor of_slice = at::zeros(sizes, example.options().requires_grad(false));
  return of_slice.requires_grad_(example.requires_grad());
}

std::vector<at::Tensor> WithTokens(std::span<const at::Tensor> examples, std::int64_t tokens) {
  std::vector<at::Tensor> of_slice;
  for (const at::Tensor& example : examples) of_slice.push_back(WithTokens(example, tokens));
  return of_slice;
}

// Returns the examples of a later slice. After its input follow the keys and values of the earlier
// slices; each slice has as many as the first slice's program returns.
StageExamples ExamplesOfSlice(const StageExamples& first, const StageProgram& program,
                              const SequenceLengths& lengths, int slice) {
  const std::span<const std::int64_t> all = lengths.of_slices;
  const std::int64_t own = lengths.OfRank(all[Index(slice)]);
  // Each rank of a tensor group may have only a part of the tokens of hidden states.
  const std::int64_t input = first.inputs[0].size(1) * own / lengths.OfRank(all[0]);
  StageExamples examples{{WithTokens(first.inputs[0], input)}, WithTokens(first.targets, own)};
  for (const std::int64_t length : all.first(Index(slice))) {
    for (const StagePort& port : std::span(program.outputs).subspan(1)) {
      const auto options = first.inputs[0].options().dtype(port.type.dtype);
      const at::Tensor kept = at::zeros(port.type.sizes, options).requires_grad_(true);
      examples.inputs.push_back(WithTokens(kept, length));
    }
  }
  return examples;
}

// The examples have the tokens of the longest sequences.
StageExamples ExamplesOfLength(const StageExamples& examples, const SequenceLengths& lengths,
                               std::int64_t length) {
  const std::int64_t longest = lengths.OfRank(lengths.Distinct().front());
  const std::int64_t own = lengths.OfRank(length);
  StageExamples of_length = {{}, WithTokens(examples.targets, own)};
  for (const at::Tensor& input : examples.inputs) {
    of_length.inputs.push_back(WithTokens(input, input.size(1) * own / longest));
  }
  return of_length;
}

std::atomic<int> compiled_slices = 0;

}  // namespace

std::vector<NamedTensor> ParametersOf(const StageModule& module) {
  std::vector<NamedTensor> parameters;
  for (const auto& parameter : module.named_parameters()) {
    const bool tied = std::any_of(
        parameters.begin(), parameters.end(),
        [&](const NamedTensor& before) { return before.tensor.is_same(parameter.value()); });
    if (!tied) parameters.push_back({parameter.key(), parameter.value()});
  }
  return parameters;
}

std::uint64_t SeedOfRun(std::uint64_t seed, std::int64_t step, int microbatch) {
  return SeedOf(SeedOf(seed, static_cast<std::uint64_t>(step)),
                static_cast<std::uint64_t>(microbatch));
}

Shards ShardsOf(std::span<const NamedTensor> parameters, const TorchStageOptions& options) {
  std::vector<std::int64_t> elements;
  std::vector<Division> divisions;
  for (const NamedTensor& parameter : parameters) {
    elements.push_back(parameter.tensor.numel());
    const bool shared = std::ranges::any_of(options.gradients.shared, [&](const auto& one) {
      return one && one->parameter == parameter.name;
    });
    const bool is_of_experts =
        options.experts.is_per_expert && options.experts.is_per_expert(parameter.name);
    divisions.push_back(shared          ? Division::kWhole
                        : is_of_experts ? Division::kExperts
                                        : Division::kShards);
  }
  return Shards(elements, divisions, options.replicas.shards);
}

std::vector<at::Tensor> ExamplesOf(std::span<const StagePort> ports, c10::Device device) {
  std::vector<at::Tensor> examples;
  for (const StagePort& port : ports) {
    const auto options = at::TensorOptions().dtype(port.type.dtype).device(device);
    const at::Tensor example = at::zeros(port.type.sizes, options);
    examples.push_back(example.requires_grad_(port.has_gradient));
  }
  return examples;
}

int CompiledSlices() { return compiled_slices; }

std::vector<std::int64_t> SequenceLengths::Distinct() const {
  const std::set<std::int64_t, std::greater<>> distinct(of_microbatches.begin(),
                                                        of_microbatches.end());
  return {distinct.begin(), distinct.end()};
}

int SequenceLengths::CountPrograms() const {
  return std::max(slices(), static_cast<int>(Distinct().size()));
}

std::vector<std::size_t> TorchStageOptions::ProgramsOfMicrobatches() const {
  const std::vector<std::int64_t> distinct = lengths.Distinct();
  std::vector<std::size_t> programs;
  for (int index = 0; index < schedule.microbatches; ++index) {
    if (distinct.empty()) {
      programs.push_back(Index(index % lengths.slices()));
      continue;
    }
    const std::int64_t length =
        lengths.of_microbatches[Index(replicas.chain * schedule.microbatches + index)];
    programs.push_back(Index(std::ranges::find(distinct, length) - distinct.begin()));
  }
  return programs;
}

double ShareOfProgram(const TorchStageOptions& options, int program) {
  if (options.lengths.CountPrograms() == 1) return 1;
  const bool by_slice = options.lengths.slices() > 1;
  const std::vector<std::int64_t>& lengths =
      by_slice ? options.lengths.of_slices : options.lengths.of_microbatches;
  const std::int64_t own = by_slice ? lengths[program] : options.lengths.Distinct()[program];
  const std::int64_t all = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  return static_cast<double>(own * std::ssize(lengths)) / static_cast<double>(all);
}

StageSpec MakeStageSpec(const std::shared_ptr<StageModule>& module, const StageExamples& examples,
                        const TorchStageOptions& options, int program) {
  StageSpec spec;
  spec.gradient_dtype = options.gradients.dtype;
  spec.numbers_random_ops = true;
  spec.exclusive = options.random.exclusive_capture;
  spec.parameters = ParametersOf(*module);
  for (const auto& [name, tensor] : module->StateTensors()) spec.buffers.push_back({name, tensor});
  if (options.replicas.zero >= 2)
    spec.sharding = ShardingOf(ShardsOf(spec.parameters, options), options);
  spec.inputs = examples.inputs;
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    if (spec.inputs[i].requires_grad()) spec.input_gradients.push_back(static_cast<int>(i));
    if (options.lengths.slices() > 1 && i > 0) spec.kept_inputs.push_back(static_cast<int>(i));
  }
  if (options.lengths.slices() > 1) spec.kept_outputs_from = 1;
  const auto run = [module, slice = program, slices = options.lengths.slices(),
                    lengths = options.lengths.of_slices](std::span<const at::Tensor> inputs) {
    const TrainingMode training(*module);
    return slices == 1 ? module->ForwardAll(inputs) : RunSlice(*module, inputs, slice, lengths);
  };
  // The microbatches whose losses, and gradients, one update averages.
  const int averaged = options.schedule.updates_each_microbatch()
                           ? 1
                           : options.schedule.microbatches * options.replicas.count;
  const double loss_gradient = ShareOfProgram(options, program) / averaged;
  module->SetLossGradient(loss_gradient);
  if (!options.schedule.last) {
    spec.forward = [run, first = options.schedule.first](std::span<const at::Tensor> inputs) {
      std::vector<at::Tensor> outputs = run(inputs);
      return first ? WithoutAliases(std::move(outputs), inputs) : outputs;
    };
    return spec;
  }
  spec.inputs.insert(spec.inputs.end(), examples.targets.begin(), examples.targets.end());
  spec.output_gradient = loss_gradient;
  spec.forward = [run, module, slices = options.lengths.slices(),
                  targets = examples.targets.size()](std::span<const at::Tensor> inputs) {
    std::vector<at::Tensor> outputs = run(inputs.first(inputs.size() - targets));
    const TrainingMode training(*module);
    if (slices == 1) return module->LossAndReports(outputs, inputs.last(targets));
    outputs.front() = module->LossOfAll(std::span(outputs).first(1), inputs.last(targets));
    return outputs;
  };
  return spec;
}

Result<StageProgram> CompileSlice(const std::shared_ptr<StageModule>& module,
                                  const StageExamples& examples, const TorchStageOptions& options,
                                  int program) {
  CompileOptions how = options.compile;
  how.costs = &options.node_costs;
  // This pass would save the attention probabilities of the first slice, which are many times
  // larger than its keys and values.
  if (options.lengths.slices() > 1) how.disabled = {"attention_by_matmul"};
  ++compiled_slices;
  return CompileStage(MakeStageSpec(module, examples, options, program), how);
}

Result<std::vector<StageProgram>> CompileSlices(const std::shared_ptr<StageModule>& module,
                                                const StageExamples& examples,
                                                const TorchStageOptions& options,
                                                const std::function<void(int slice)>& on_slice) {
  PENSTOCK_TRY_STATUS(CheckOptions(options, examples));
  if (options.programs != nullptr) {
    PENSTOCK_TRY_STATUS(CheckProgram(options.programs->front(), examples, options));
    return *options.programs;
  }
  std::vector<StageProgram> programs;
  PENSTOCK_TRY(StageProgram first, CompileSlice(module, examples, options, 0));
  programs.push_back(std::move(first));
  PENSTOCK_TRY_STATUS(CheckProgram(programs.front(), examples, options));
  for (int slice = 1; slice < options.lengths.slices(); ++slice) {
    if (on_slice) on_slice(slice);
    PENSTOCK_TRY(
        StageProgram program,
        CompileSlice(module, ExamplesOfSlice(examples, programs.front(), options.lengths, slice),
                     options, slice));
    programs.push_back(std::move(program));
  }
  const std::vector<std::int64_t> lengths = options.lengths.Distinct();
  for (int index = 1; index < std::ssize(lengths); ++index) {
    if (on_slice) on_slice(index);
    PENSTOCK_TRY(
        StageProgram program,
        CompileSlice(module, ExamplesOfLength(examples, options.lengths, lengths[Index(index)]),
                     options, index));
    programs.push_back(std::move(program));
  }
  return programs;
}

}  // namespace penstock
