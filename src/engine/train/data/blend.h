// DatasetBlend: which of several datasets each sample comes from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace penstock {

struct BlendPart {
  double weight = 1;
  std::string path;
};

// Parses "0.7 tokens/web, 0.3 tokens/code": weights above 0, which need not add up to 1. Errors:
// kInvalidArgument.
Result<std::vector<BlendPart>> ParseBlend(std::string_view text);

// Every dataset has a fixed number of each 4096 consecutive samples, in a random order that
// repeats. So a run that resumes needs no state, and the weights hold to 1/4096.
class DatasetBlend {
 public:
  // Requires: at least one weight and at most 4096, all above 0. Every dataset gets a sample.
  DatasetBlend(const std::vector<double>& weights, std::uint64_t seed);

  struct Choice {
    std::size_t dataset = 0;
    std::uint64_t index = 0;  // among the samples of that dataset, in order
  };
  Choice Of(std::uint64_t sample) const;
  // Returns how many of the first `samples` samples come from a dataset.
  std::uint64_t CountBefore(std::size_t dataset, std::uint64_t samples) const;

  // Returns how many of 4096 samples come from each dataset.
  const std::vector<std::uint64_t>& counts() const { return counts_; }
  // Returns the share of the samples that come from a dataset.
  double share(std::size_t dataset) const {
    return static_cast<double>(counts_[dataset]) / static_cast<double>(order_.size());
  }

 private:
  std::vector<std::uint64_t> counts_;
  std::vector<Choice> order_;  // of the first 4096 samples
};

}  // namespace penstock
