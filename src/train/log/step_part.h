// StepPart: the results of a step on some of the ranks, after they have ended it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>

#include "base/byte_stream.h"
#include "runtime/update/update.h"

namespace penstock {

struct StepPart {
  int ranks = 0;
  std::optional<double> loss;
  std::int64_t busiest_ns = 0;
  std::int64_t start_ns = std::numeric_limits<std::int64_t>::max();
  std::int64_t end_ns = 0;
  std::map<int, double> squared_norms;  // by stage, so that the order of additions is fixed
  std::optional<Verdict> verdict;
  double seconds = 0;  // of training, on the leader's clock, when the last part arrived

  double grad_norm() const;
  double bubble() const {
    const auto length = static_cast<double>(end_ns - start_ns);
    return length > 0 ? 1 - static_cast<double>(busiest_ns) / length : 0;
  }

  // Adds the part of other ranks.
  void Add(const StepPart& other);

  void Put(ByteWriter& writer) const;
  static StepPart Take(ByteReader& reader);
};

}  // namespace penstock
