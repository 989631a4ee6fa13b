// What a model's attention knows of the tokens before its input: nothing, or the keys and values of
// earlier slices of the same sequences (Sun et al., Seq1F1B, 2024).
//
// Shapes in comments as in layers.h; P is the number of tokens before the input. A context serves
// one run of a stage's layers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace penstock {

struct KeysValues {
  at::Tensor keys;
  at::Tensor values;
};

class SequenceContext {
 public:
  SequenceContext() = default;  // the input is its whole sequences: nothing is kept
  // `earlier`: what Own() gave for each of the `slices` slices before (0 and more), one behind the
  // other.
  SequenceContext(int slices, std::span<const at::Tensor> earlier);

  std::int64_t start() const { return start_; }  // P

  // Each attention layer calls it once, in the order of layers, with the input's keys and values
  // [B, G, S, E]; gives those of all tokens so far, [B, G, P + S, E].
  KeysValues Extend(const KeysValues& own);

  // [S, P + S] in the query's dtype, to be added to the scores: 0 for the tokens up to the query's
  // own, else minus infinity. None where P = 0: ATen's causal attention is that.
  std::optional<at::Tensor> Mask(const at::Tensor& query);

  // The input's own keys and values of all layers so far: [B, S, G, E] each, contiguous.
  const std::vector<at::Tensor>& Own() const { return own_; }

 private:
  at::Tensor WithEarlier(const at::Tensor& own);

  int slices_ = -1;  // before this one; -1: a whole sequence
  std::int64_t start_ = 0;
  std::vector<at::Tensor> earlier_;
  std::vector<at::Tensor> own_;
  at::Tensor mask_;  // one for all layers
};

}  // namespace penstock
