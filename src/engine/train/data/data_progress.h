// DataProgress: how much of each dataset is consumed at a step, across changes of the batch size
// and of the datasets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"

namespace penstock {

class DataProgress {
 public:
  // `datasets` are digests; `seeds` by which the orders of their samples are chosen are 0, 1, ...
  explicit DataProgress(const std::vector<std::string>& datasets);

  // Continues with what was consumed before `step`. The same dataset in two places is two datasets.
  void ContinueAfter(std::int64_t step, const std::vector<ConsumedData>& consumed);

  // The step at which the run continued, and what all datasets had consumed then.
  std::int64_t first_step() const { return first_step_; }
  std::uint64_t consumed_before() const;
  std::uint64_t consumed_before(std::size_t dataset) const { return now_[dataset].samples; }
  std::uint64_t order(std::size_t dataset) const { return now_[dataset].order; }

  // Returns what was consumed once each dataset has consumed `more` samples since first_step().
  std::vector<ConsumedData> After(const std::vector<std::uint64_t>& more) const;

 private:
  std::int64_t first_step_ = 0;
  std::vector<ConsumedData> now_;     // of the datasets, at first_step_
  std::vector<ConsumedData> others_;  // of datasets that the run no longer reads
};

}  // namespace penstock
