#include "train/data/token_samples.h"

#include "base/mix_bits.h"
#include "train/data/permutation.h"

namespace penstock {

TokenSamples::TokenSamples(std::vector<TokenSet> sets, const std::vector<double>& weights,
                           std::int64_t sequence, std::int64_t per_step, std::uint64_t seed)
    : sets_(std::move(sets)),
      blend_(weights, SeedOf(seed, 0)),
      sequence_(static_cast<std::uint64_t>(sequence)),
      per_step_(static_cast<std::uint64_t>(per_step)),
      seed_(SeedOf(seed, 1)) {}

TokenSamples::Window TokenSamples::WindowOf(std::int64_t step, std::int64_t sample) const {
  const std::uint64_t number =
      static_cast<std::uint64_t>(step) * per_step_ + static_cast<std::uint64_t>(sample);
  const DatasetBlend::Choice choice = blend_.Of(number);
  const std::uint64_t windows = (sets_[choice.dataset].size() - 1) / sequence_;
  const std::uint64_t epoch = choice.index / windows;
  const std::uint64_t seed = SeedOf(SeedOf(seed_, choice.dataset), epoch);
  return {choice.dataset, PermutedIndex(choice.index % windows, windows, seed) * sequence_};
}

void TokenSamples::Copy(std::int64_t step, std::int64_t sample, std::size_t begin,
                        std::span<std::int64_t> to) const {
  const Window window = WindowOf(step, sample);
  sets_[window.dataset].Read(window.begin + begin, to);
}

}  // namespace penstock
