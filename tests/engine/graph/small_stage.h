// Small stages to compile: a transformer block in plain ATen calls, and its results by autograd.
#pragma once

#include <vector>

#include "graph/compile.h"
#include "graph/run/interpret.h"

namespace penstock::testing {

inline constexpr std::int64_t kBatch = 2;
inline constexpr std::int64_t kSequence = 8;
inline constexpr std::int64_t kDim = 16;
inline constexpr std::int64_t kVocabulary = 11;

// Token ids -> hidden states, through an embedding and one block.
StageSpec FirstStage();
// Hidden states -> hidden states: RMSNorm, causal attention, SwiGLU, each with a residual.
StageSpec MiddleStage();
// Hidden states and targets -> mean cross-entropy; backward starts from 1/4.
StageSpec LastStage();
// Token ids and targets -> loss: the whole model in one stage.
StageSpec WholeModel();

// Where the stages that are made next have their tensors; the CPU by default.
void SetDeviceOfStages(c10::Device device);

struct Answer {
  std::vector<at::Tensor> outputs = {};
  std::vector<at::Tensor> gradients = {};  // of every parameter; undefined if it has none
  std::vector<at::Tensor> input_gradients = {};
};

// Random inputs with the spec's shapes, and gradients of the outputs.
struct Data {
  std::vector<at::Tensor> inputs;
  // By output: undefined if it has none. Empty if the spec fixes the gradient.
  std::vector<at::Tensor> output_gradients;
};
Data RandomData(const StageSpec& spec, int seed);

// Runs the stage with plain autograd.
Answer RunAutograd(const StageSpec& spec, const Data& data);

// How to run the pieces of a compiled stage.
struct Runner {
  bool split = true;      // backward_input then backward_weight; else backward as one graph
  bool reference = true;  // the reference interpreter; else GraphProgram
};
Answer RunGraphs(const StageSpec& spec, const StageGraphs& graphs, const Data& data,
                 const Runner& runner);

Result<StageGraphs> Build(const StageSpec& spec, const CompileOptions& options = {});

// Fails the test unless they are bitwise equal.
void ExpectSame(const Answer& expected, const Answer& actual);
// Fails the test unless all differences are below `bound`, relative to the largest number of each
// tensor.
void ExpectNear(const Answer& expected, const Answer& actual, double bound);

}  // namespace penstock::testing
