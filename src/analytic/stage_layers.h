// Which part of a model a pipeline stage has, and what it adds up to.
#pragma once

#include <vector>

#include "analytic/kept_tensors.h"
#include "analytic/layer_work.h"
#include "analytic/microbatch.h"
#include "model_spec/model_shape.h"

namespace penstock {

struct StageLayers {
  std::int64_t begin = 0;
  std::int64_t end = 0;    // past the last layer
  bool embedding = false;  // whether the stage is the first
  bool head = false;       // whether it is the last
  // Whether all ranks share embedding, head and loss (schedule/vocabulary.h), so that a last stage
  // ends with the norm.
  bool shared_vocabulary = false;

  bool has_embedding() const { return embedding && !shared_vocabulary; }
  bool has_logits() const { return head && !shared_vocabulary; }
};

// Divides the layers as `penstock train` does: as evenly as possible, longer stages first.
// Errors: kInvalidArgument for fewer layers than stages.
Result<std::vector<StageLayers>> DivideLayers(const ModelShape& shape, int stages);

// The first stage has no input gradient, so that its whole backward is W.
Work WorkOfStage(const ModelShape& shape, const StageLayers& stage, const Microbatch& batch);

struct KeptBytes {
  double from_forward = 0;  // from the end of F to I or B
  double after_input = 0;   // from the end of I to W
};
KeptBytes KeptByStage(const ModelShape& shape, const StageLayers& stage, const Microbatch& batch);

// The number of parameters of a rank. A last stage has its own copy of a tied head.
struct ParameterCount {
  double of_experts = 0;  // which replicas divide
  double others = 0;

  double all() const { return of_experts + others; }
};
ParameterCount ParametersOfStage(const ModelShape& shape, const StageLayers& stage,
                                 const Microbatch& batch);

// The bytes of the hidden states of a rank, the message between two stages.
double HiddenBytes(const ModelShape& shape, const Microbatch& batch);

}  // namespace penstock
