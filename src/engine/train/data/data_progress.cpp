#include "train/data/data_progress.h"

#include <algorithm>

namespace penstock {

DataProgress::DataProgress(const std::vector<std::string>& datasets) {
  for (const std::string& dataset : datasets) now_.push_back({dataset, 0, now_.size()});
}

void DataProgress::ContinueAfter(std::int64_t step, const std::vector<ConsumedData>& consumed) {
  first_step_ = step;
  others_ = consumed;
  std::uint64_t unused = 0;
  for (const ConsumedData& each : consumed) unused = std::max(unused, each.order + 1);
  for (ConsumedData& each : now_) {
    const auto found = std::ranges::find(others_, each.dataset, &ConsumedData::dataset);
    if (found == others_.end()) {
      each.samples = 0;
      each.order = unused++;
    } else {
      each = *found;
      others_.erase(found);
    }
  }
}

std::uint64_t DataProgress::consumed_before() const {
  std::uint64_t samples = 0;
  for (const std::vector<ConsumedData>* all : {&now_, &others_}) {
    for (const ConsumedData& each : *all) samples += each.samples;
  }
  return samples;
}

std::vector<ConsumedData> DataProgress::After(const std::vector<std::uint64_t>& more) const {
  std::vector<ConsumedData> all = now_;
  for (std::size_t i = 0; i < all.size(); ++i) all[i].samples += more[i];
  all.insert(all.end(), others_.begin(), others_.end());
  return all;
}

}  // namespace penstock
