// The baseline that a trained model is compared with: a bigram model of bytes.
//
// p(b | a) = (n(a, b) + k p(b)) / (n(a) + k), with p(b) from single bytes, add-one smoothed: counts
// of the training text backed off to single bytes, a fixed weight k for the latter.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/index.h"

namespace penstock {

class Bigram {
 public:
  explicit Bigram(std::span<const std::uint8_t> text);

  // -log p(next | previous).
  double Nats(std::uint8_t previous, std::uint8_t next) const {
    return nats_[Index(previous) * 256 + next];
  }
  // Mean over the bytes behind the first; the same bytes that a model predicts in held-out windows
  // (see EvaluateText) when `text` is cut to them. 0 for fewer than two bytes.
  double MeanNats(std::span<const std::uint8_t> text) const;

 private:
  std::vector<double> nats_;  // [previous][next]
};

}  // namespace penstock
