// SampleSource: the samples that a run trains on.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/manifest.h"

namespace penstock {

// In place of the tokens after the end of a document that is a sample. Cross-entropy ignores it as
// a target.
inline constexpr std::int64_t kNoToken = -100;

// A sample is sequence + 1 tokens: all but the last are its inputs, all but the first its targets.
// Which one it is depends only on the seed, the step and its index in the step's batch, not on
// ranks, chunks or microbatches. Any thread may use it, except while ContinueAfter runs.
class SampleSource {
 public:
  virtual ~SampleSource() = default;

  // Copies the tokens of a sample from `begin` on, with kNoToken after its end if it is a document.
  // Requires: begin + to.size() is at most sequence + 1, or the length of the sample's microbatch
  // + 1.
  virtual void Copy(std::int64_t step, std::int64_t sample, std::size_t begin,
                    std::span<std::int64_t> to) const = 0;

  // Returns what steps 0 to `steps` - 1 have consumed of each dataset. Empty for a source whose
  // steps draw at random, with replacement.
  virtual std::vector<ConsumedData> ConsumedAfter(std::int64_t /*steps*/) const { return {}; }
  // Makes step `step` begin after what was consumed, instead of after as many steps of this size.
  // Datasets that have consumed nothing start with their first sample.
  virtual void ContinueAfter(std::int64_t /*step*/, const std::vector<ConsumedData>& /*consumed*/) {
  }
};

}  // namespace penstock
