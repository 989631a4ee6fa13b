#include "train/data/token_samples.h"

#include "base/mix_bits.h"
#include "train/data/permutation.h"

namespace penstock {
namespace {

std::vector<std::string> DigestsOf(const std::vector<TokenSet>& sets) {
  std::vector<std::string> digests;
  for (const TokenSet& set : sets) digests.push_back(set.digest());
  return digests;
}

}  // namespace

TokenSamples::TokenSamples(std::vector<TokenSet> sets, const std::vector<double>& weights,
                           std::int64_t sequence, std::int64_t per_step, std::uint64_t seed)
    : sets_(std::move(sets)),
      blend_(weights, SeedOf(seed, 0)),
      progress_(DigestsOf(sets_)),
      blended_before_(sets_.size()),
      sequence_(static_cast<std::uint64_t>(sequence)),
      per_step_(static_cast<std::uint64_t>(per_step)),
      seed_(SeedOf(seed, 1)) {}

std::uint64_t TokenSamples::NumberOf(std::int64_t step, std::int64_t sample) const {
  return progress_.consumed_before() +
         static_cast<std::uint64_t>(step - progress_.first_step()) * per_step_ +
         static_cast<std::uint64_t>(sample);
}

// A blend that has not changed gives each dataset what it has consumed before first_step(); another
// one continues where each dataset is.
TokenSamples::Window TokenSamples::WindowOf(std::int64_t step, std::int64_t sample) const {
  const DatasetBlend::Choice choice = blend_.Of(NumberOf(step, sample));
  const std::uint64_t index =
      progress_.consumed_before(choice.dataset) + choice.index - blended_before_[choice.dataset];
  const std::uint64_t windows = (sets_[choice.dataset].size() - 1) / sequence_;
  const std::uint64_t seed =
      SeedOf(SeedOf(seed_, progress_.order(choice.dataset)), index / windows);
  return {choice.dataset, PermutedIndex(index % windows, windows, seed) * sequence_};
}

std::vector<ConsumedData> TokenSamples::ConsumedAfter(std::int64_t steps) const {
  std::vector<std::uint64_t> more;
  for (std::size_t i = 0; i < sets_.size(); ++i) {
    more.push_back(blend_.CountBefore(i, NumberOf(steps, 0)) - blended_before_[i]);
  }
  return progress_.After(more);
}

void TokenSamples::ContinueAfter(std::int64_t step, const std::vector<ConsumedData>& consumed) {
  progress_.ContinueAfter(step, consumed);
  for (std::size_t i = 0; i < sets_.size(); ++i) {
    blended_before_[i] = blend_.CountBefore(i, progress_.consumed_before());
  }
}

void TokenSamples::Copy(std::int64_t step, std::int64_t sample, std::size_t begin,
                        std::span<std::int64_t> to) const {
  const Window window = WindowOf(step, sample);
  sets_[window.dataset].Read(window.begin + begin, to);
}

}  // namespace penstock
