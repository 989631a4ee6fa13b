// TokenSamples: shuffled windows of tokenized datasets.
#pragma once

#include <cstdint>
#include <vector>

#include "train/data/blend.h"
#include "train/data/data_progress.h"
#include "train/data/sample_source.h"
#include "train/data/token_set.h"

namespace penstock {

// A dataset is divided into consecutive windows of `sequence` tokens. Each epoch visits all of them
// in another random order; a window shares its last target with the next one's first input.
class TokenSamples : public SampleSource {
 public:
  // `per_step` is the number of samples in a step's batch. Requires: as many weights as sets, and
  // each set has more than `sequence` tokens.
  TokenSamples(std::vector<TokenSet> sets, const std::vector<double>& weights,
               std::int64_t sequence, std::int64_t per_step, std::uint64_t seed);

  void Copy(std::int64_t step, std::int64_t sample, std::size_t begin,
            std::span<std::int64_t> to) const override;
  std::vector<ConsumedData> ConsumedAfter(std::int64_t steps) const override;
  void ContinueAfter(std::int64_t step, const std::vector<ConsumedData>& consumed) override;

  struct Window {
    std::size_t dataset = 0;
    std::uint64_t begin = 0;  // of its first token
  };
  Window WindowOf(std::int64_t step, std::int64_t sample) const;

 private:
  // Returns the number of a step's sample, by which its dataset is chosen.
  std::uint64_t NumberOf(std::int64_t step, std::int64_t sample) const;

  std::vector<TokenSet> sets_;
  DatasetBlend blend_;
  DataProgress progress_;
  // By dataset: how many of the samples before progress_.first_step() this blend takes from it.
  std::vector<std::uint64_t> blended_before_;
  std::uint64_t sequence_;
  std::uint64_t per_step_;
  std::uint64_t seed_;
};

}  // namespace penstock
