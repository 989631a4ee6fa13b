// Options of a mixture of experts (src/engine/model/decoder/experts.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model_spec/model_config.h"

namespace penstock {

struct ExpertOptions {
  std::int64_t experts = 8;
  std::int64_t top_k = 2;
  std::int64_t hidden = 0;        // width of an expert; 0: a dense layer's
  std::int64_t shared = 0;        // experts of this width that process all tokens, as one layer
  std::int64_t dense_layers = 0;  // first layers without experts
  // Scores of experts: softmax over all, or sigmoid of each (DeepSeek-V3, section 2.1.2).
  std::string score = "softmax";
  bool normalize = true;  // whether the weights of a token's experts add up to `scale`
  double scale = 1;
  // Experts are in equal groups. A token's experts are in the best `top_groups` of them, by the
  // highest score in the group, or with sigmoid by the sum of the two highest.
  std::int64_t groups = 1;
  std::int64_t top_groups = 1;
  // How tokens are balanced over the experts: not at all, by a term of the loss, or by a bias of
  // the choice, which each step changes against the load (Wang et al., Auxiliary-Loss-Free Load
  // Balancing, 2024).
  std::string balance = "none";
  double balance_loss = 0.001;  // factor of the loss term

  std::vector<Field> Fields();
  // Errors: kInvalidArgument, naming the key.
  Status Check() const;
};

}  // namespace penstock
