// Capture: runs a stage's forward and its autograd backward once and records them as one joint
// graph.
//
// A boxed fallback on a dispatch key below Autograd sees every ATen op of the calling thread.
// Composite ops therefore arrive decomposed, and the backward arrives as plain ops. This needs no
// derivative formulas and no changes to model code. A tensor is identified by its storage and its
// position in it. An in-place op is recorded in its functional form, and its storage then stands
// for the new value.
// Threads: any. Captures on several threads are independent.
// Errors: kInvalidArgument for anything that a graph cannot repeat exactly: random ops without a
// generator argument, values read out of tensors that are not constant (item()), shapes that depend
// on data, in-place changes of inputs or parameters, and weights that the stage does not own.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/ir/ir.h"

namespace penstock {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// How the replicas of a stage share its parameters (FSDP; Zhao et al., PyTorch FSDP, 2023). The
// sharded parameters form one sequence of elements, which is divided into equal shards, one per
// replica.
struct ParameterSharding {
  // The group of the replicas, for collectives.
  static constexpr int kGroup = -1;

  int replicas = 0;
  // By parameter: its first element in the sequence; -1 if it is not sharded.
  std::vector<std::int64_t> starts;
  std::int64_t shard_elements = 0;
  bool weights = false;  // whether weights are in shards too, not only gradients

  std::int64_t elements() const { return replicas * shard_elements; }
  bool sharded(std::size_t parameter) const { return starts[parameter] >= 0; }
};

struct StageSpec {
  // Computes the stage's outputs from `inputs`. Runs once, under autograd.
  std::function<std::vector<at::Tensor>(std::span<const at::Tensor> inputs)> forward = {};
  // Leaf tensors. Gradients are computed where the tensor requires them. If the same tensor appears
  // under two names (tied weights), its whole gradient belongs to the first.
  std::vector<NamedTensor> parameters = {};
  // Other tensors whose current values each run reads: running statistics, frozen weights. Forward
  // may update them in place. All other tensors that forward reads become constants of the graph;
  // outputs may not depend on one that requires a gradient, or that ForeignScope refuses.
  std::vector<NamedTensor> buffers = {};
  std::vector<at::Tensor> inputs = {};    // examples with the shape and dtype of all later inputs
  std::vector<int> input_gradients = {};  // the inputs whose gradients are computed
  // Set if the first output is a loss: its constant gradient, such as 1/microbatches. The gradients
  // of all other outputs are the last inputs of the backward.
  std::optional<double> output_gradient = {};
  // The inputs, and the first of the outputs, that the caller keeps alive until the end of the
  // backward. Saving them is free, and nodes that only copy them run again in the backward.
  std::vector<int> kept_inputs = {};
  std::optional<std::size_t> kept_outputs_from = {};
  // Sharded parameters are contiguous and have one dtype.
  std::optional<ParameterSharding> sharding = {};
  // Whether each random op has a number (random_ops.h), from which a run seeds it. Otherwise random
  // ops draw from the run's generator one after the other.
  bool numbers_random_ops = false;
  // Locked during the capture; may be null. For code that sets the state of the process's
  // generator, as checkpoints do: only then are random ops that start from the same state one draw.
  std::mutex* exclusive = nullptr;
  // The dtype in which gradients of fp32 and 16-bit parameters are accumulated: fp32 or bf16.
  c10::ScalarType gradient_dtype = c10::kFloat;
};

// Forward and backward as one graph. Its inputs are the spec's inputs, then the gradients of the
// outputs that have one. Its outputs are the stage's outputs, the new values of the buffers that
// forward updates, the gradient of each parameter
// (kNoValue if it has none) and the requested gradients of inputs (kNoValue only if no input has
// one). Outputs and gradients of inputs are contiguous, and no output aliases a parameter.
//
// If weights are in shards, sharded parameters are views of the all-gather of the bound shard. If
// gradients are, the gradients of sharded parameters are packed and reduce-scattered, and the
// gradient of the own shard is the last output.
struct JointGraph {
  Graph graph;
  // By output, then by updated buffer: the graph input that is its gradient. kNoValue if it has
  // none, because the output depends on nothing that needs a gradient or because its gradient is
  // constant.
  std::vector<ValueId> output_gradients;
  std::vector<at::Tensor> updated_buffers;       // their new values are the last of outputs()
  std::vector<Bound> parameters;                 // also parameters that no node reads
  std::vector<int> differentiated_inputs;        // the spec's input_gradients
  std::vector<int> kept_inputs, kept_outputs;    // indices, from the spec
  std::optional<ParameterSharding> sharding;     // from the spec
  c10::ScalarType gradient_dtype = c10::kFloat;  // from the spec
  c10::Device device = c10::kCPU;                // of parameters, buffers and inputs

  std::span<const ValueId> outputs() const {
    return std::span(graph.outputs).first(output_gradients.size());
  }
  std::span<const ValueId> parameter_gradients() const {
    return std::span(graph.outputs).subspan(output_gradients.size(), parameters.size());
  }
  // The roots of the kept inputs and outputs.
  std::vector<ValueId> KeptInputs() const;
  std::vector<ValueId> KeptOutputs() const;
  std::span<const ValueId> input_gradients() const {
    return std::span(graph.outputs)
        .subspan(output_gradients.size() + parameters.size(), differentiated_inputs.size());
  }
};

Result<JointGraph> CaptureStage(const StageSpec& spec);
// Returns whether this thread is running the code of a stage or its backward under capture.
bool IsCapturing();

}  // namespace penstock
