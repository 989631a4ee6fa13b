// SampleSource: the samples that a run trains on.
#pragma once

#include <cstdint>
#include <span>

namespace penstock {

// In place of the tokens after the end of a document that is a sample. Cross-entropy ignores it as
// a target.
inline constexpr std::int64_t kNoToken = -100;

// A sample is sequence + 1 tokens: all but the last are its inputs, all but the first its targets.
// Which one it is depends only on the seed, the step and its index in the step's batch, not on
// ranks, chunks or microbatches. Immutable, so any thread may use it.
class SampleSource {
 public:
  virtual ~SampleSource() = default;

  // Copies the tokens of a sample from `begin` on, with kNoToken after its end if it is a document.
  // Requires: begin + to.size() is at most sequence + 1, or the length of the sample's microbatch
  // + 1.
  virtual void Copy(std::int64_t step, std::int64_t sample, std::size_t begin,
                    std::span<std::int64_t> to) const = 0;
};

}  // namespace penstock
