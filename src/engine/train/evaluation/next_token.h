// How generation chooses the next token from the model's logits.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace penstock {

struct Sampling {
  double temperature = 0.8;  // logits are divided by it; 0: always the most likely token
  std::int64_t top_k = 0;    // only the k most likely tokens; 0: all
  // Only the fewest most likely tokens whose probabilities, at this temperature and after top_k,
  // add up to at least this (Holtzman et al., nucleus sampling, 2020). 1: all.
  double top_p = 1;
};

// Returns a token for logits [vocabulary]. Throws std::runtime_error if they are not finite.
std::int64_t NextToken(const at::Tensor& logits, const Sampling& sampling,
                       at::Generator& generator);

}  // namespace penstock
