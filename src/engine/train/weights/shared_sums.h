// SharedSums: adds the gradients of parameters that several stages of a chain have. Private to
// train/. Threads: as StageWeights.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "runtime/message.h"

namespace penstock {

class SharedSums {
 public:
  // Adds the next parameter of Schedule::shared: one that the stage lacks, or a gradient that it
  // computes as the `holder`th of its holders.
  void AddOther() { parameters_.emplace_back(); }
  void Add(at::Tensor gradient, int holder, int holders);

  // As StageUpdate's, by index in Schedule::shared.
  Message Share(int parameter);
  void Take(int parameter, int holder, Message gradient);
  void Sum(int parameter);

 private:
  struct Parameter {
    at::Tensor gradient;
    int holder = 0;
    at::Tensor outgoing;               // other holders read it
    std::vector<at::Tensor> incoming;  // by holder
  };
  std::vector<std::optional<Parameter>> parameters_;
};

}  // namespace penstock
