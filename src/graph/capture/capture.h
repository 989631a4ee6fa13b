// Capture: a stage's forward and its autograd backward, run once, as one joint graph.
//
// A boxed fallback on a dispatcher key below Autograd sees every ATen op of the calling thread, so
// composite ops arrive decomposed and the backward arrives as plain ops: no derivative formulas of
// our own, no change to model code. Tensors are identified by their storage and their place in it.
// An in-place op becomes its functional form, and its storage then means the new value.
// Threads: captures the calling thread's ops; captures on several threads are independent.
// Errors: kInvalidArgument for what a graph could not repeat exactly: random ops that take no
// generator, values read out
// of tensors (item()), shapes that depend on data, in-place changes of inputs and parameters.
#pragma once

#include <functional>
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

struct StageSpec {
  // The stage's computation: its outputs from `inputs`. Runs once, under autograd.
  std::function<std::vector<at::Tensor>(std::span<const at::Tensor> inputs)> forward;
  // Leaves; gradients are taken for those that require them. The same tensor under two names (tied
  // weights) has its whole gradient under the first.
  std::vector<NamedTensor> parameters;
  std::vector<at::Tensor> inputs;    // examples, of the shape and dtype of every later input
  std::vector<int> input_gradients;  // which of the inputs' gradients are asked for
  // For a loss, the first output: the constant gradient that backward starts from (1/microbatches,
  // say). Backward reads the gradients of all other outputs as its last inputs.
  std::optional<double> output_gradient;
  // Inputs, and outputs from a first one on, that the caller holds anyway until this backward is
  // done: it holds them for nothing, and what only copies them is made again there.
  std::vector<int> kept_inputs;
  std::optional<std::size_t> kept_outputs_from;
};

// The joint graph: inputs are the spec's and the gradients of the outputs that have one; outputs
// are the stage's outputs, the gradient of each parameter (kNoValue where there is none) and the
// gradients of the inputs that are asked for (kNoValue only where there is none of any). Outputs
// and gradients of inputs are contiguous, and no output lies in a parameter's memory.
struct JointGraph {
  Graph graph;
  // By output: the graph input that is its gradient. kNoValue where there is none: the output
  // depends on nothing that a gradient is asked for, or its gradient is constant.
  std::vector<ValueId> output_gradients;
  std::vector<Bound> parameters;               // all of them, also what no node reads
  std::vector<int> differentiated_inputs;      // the spec's input_gradients
  std::vector<int> kept_inputs, kept_outputs;  // by number, as the spec says

  std::span<const ValueId> outputs() const {
    return std::span(graph.outputs).first(output_gradients.size());
  }
  std::span<const ValueId> parameter_gradients() const {
    return std::span(graph.outputs).subspan(output_gradients.size(), parameters.size());
  }
  // Roots of what the caller holds anyway.
  std::vector<ValueId> KeptInputs() const;
  std::vector<ValueId> KeptOutputs() const;
  std::span<const ValueId> input_gradients() const {
    return std::span(graph.outputs).subspan(output_gradients.size() + parameters.size());
  }
};

Result<JointGraph> CaptureStage(const StageSpec& spec);

}  // namespace penstock
