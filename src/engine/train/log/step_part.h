// StepPart: the results of a step on some of the ranks, after they have ended it.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "base/byte_stream.h"
#include "monitor/metrics.h"
#include "runtime/update/update.h"

namespace penstock {

// The times and the memory of a rank in a step.
struct RankFigures {
  std::int64_t busy_ns = 0;
  std::int64_t peak_activation_bytes = 0;
};

struct StepPart {
  std::map<int, RankFigures> ranks;
  std::optional<double> loss;
  std::int64_t start_ns = std::numeric_limits<std::int64_t>::max();
  std::int64_t end_ns = 0;
  std::map<int, double> squared_norms;  // by stage, so that the order of additions is fixed
  std::optional<Verdict> verdict;
  bool trace_requested = false;  // by a signal
  double seconds = 0;            // of training, on the leader's clock, when the last part arrived

  double grad_norm() const;
  // Returns the idle share of the step on the busiest rank.
  double bubble() const;
  // Returns the figures of all ranks, by rank. Requires the parts of all ranks.
  std::vector<RankMetric> rank_metrics() const;

  // Adds the part of other ranks.
  void Add(const StepPart& other);

  void Put(ByteWriter& writer) const;
  static StepPart Take(ByteReader& reader);

 private:
  double IdleShare(std::int64_t busy_ns) const;
};

}  // namespace penstock
