// The baseline that a trained model is compared with: a bigram model of bytes.
//
// p(b | a) = (n(a, b) + k p(b)) / (n(a) + k): counts of the training text, backed off with a fixed
// weight k to p(b), the add-one smoothed distribution of single bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/index.h"

namespace penstock {

class Bigram {
 public:
  explicit Bigram(std::span<const std::uint8_t> text);

  // Returns -log p(next | previous).
  double Nats(std::uint8_t previous, std::uint8_t next) const {
    return nats_[Index(previous) * 256 + next];
  }
  // Returns the mean over all bytes after the first. If `text` is what EvaluatedPart returns, these
  // are the bytes that a model predicts in EvaluateText. Returns 0 for fewer than two bytes.
  double MeanNats(std::span<const std::uint8_t> text) const;

 private:
  std::vector<double> nats_;  // [previous][next]
};

}  // namespace penstock
