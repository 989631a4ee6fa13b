// What a model takes from the folder of the weights it starts from, apart from the weights.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "config/train_config.h"
#include "train/huggingface/weights.h"

namespace penstock {

// Unties the head of a model whose configuration ties it although the files have a head of its own.
// Returns a line for the user if it did, and one that names tensors that the model does not read;
// the transformers package does and warns likewise. Errors: kInvalidArgument, as Read.
Result<std::vector<std::string>> FitModel(const HuggingFaceWeights& weights,
                                          const std::string& folder, ModelConfig& config);

// Fits the model of a run to the folder `config.weights`, and uses the folder's tokenizer unless
// the configuration names one. Does nothing if there are no such weights: a run that resumes needs
// none. Errors: as FitModel and TokenizerOfFolder; kInvalidArgument if model.sequence is longer
// than the learned positions.
Result<std::vector<std::string>> FollowWeights(TrainConfig& config);

}  // namespace penstock
