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
#include "graph/ir.h"

namespace penstock {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

struct StageSpec {
  // The stage's computation: one tensor from `inputs`. Runs once, under autograd.
  std::function<at::Tensor(std::span<const at::Tensor> inputs)> forward;
  // Leaves; gradients are taken for those that require them. The same tensor under two names (tied
  // weights) has its whole gradient under the first.
  std::vector<NamedTensor> parameters;
  std::vector<at::Tensor> inputs;  // examples, of the shape and dtype of every later input
  bool input_gradient = false;     // whether the gradient of inputs[0] is asked for
  // For a loss: the constant gradient that backward starts from (1/microbatches, say). Without
  // it backward reads the gradient of the output as its last input.
  std::optional<double> output_gradient;
};

// The joint graph: inputs are the spec's and, unless it is constant, the output's gradient;
// outputs are the stage's output, the gradient of each parameter (kNoValue where there is none) and
// the input's gradient (kNoValue likewise). Output and input gradient are contiguous.
struct JointGraph {
  Graph graph;
  ValueId output_gradient = kNoValue;  // the input; kNoValue where it is constant
  std::vector<Bound> parameters;       // all of them, also what no node reads

  ValueId output() const { return graph.outputs.front(); }
  ValueId input_gradient() const { return graph.outputs.back(); }
  std::span<const ValueId> parameter_gradients() const {
    return std::span(graph.outputs).subspan(1, parameters.size());
  }
};

Result<JointGraph> CaptureStage(const StageSpec& spec);

}  // namespace penstock
