// When the values of a timeline are computed.
#pragma once

#include <vector>

#include "base/index.h"
#include "schedule/deps.h"
#include "schedule/timeline.h"

namespace penstock {

// The times of F, and of I or B, by stage and microbatch index. Requires: one span per action.
class ComputeTimes {
 public:
  ComputeTimes(const Schedule& schedule, const Timeline& timeline)
      : indices_(Index(schedule.indices())), times_(2 * Index(schedule.stages()) * indices_) {
    for (std::size_t r = 0; r < schedule.lanes.size(); ++r) {
      for (std::size_t i = 0; i < schedule.lanes[r].size(); ++i) {
        ForEachPart(schedule.lanes[r][i], [&](const Part& part) {
          if (part.op == Op::kForward) Of(ValueKind::kActivation, part) = timeline.spans[r][i];
          if (MakesInputGradient(part.op)) {
            Of(ValueKind::kGradient, part) = timeline.spans[r][i];
          }
        });
      }
    }
  }

  // F for an activation, and I or B for a gradient.
  const Span& Of(ValueKind kind, std::size_t stage, std::size_t index) const {
    return times_[2 * (stage * indices_ + index) + Index(kind)];
  }

 private:
  Span& Of(ValueKind kind, const Part& part) {
    return times_[2 * (part.stage * indices_ + Index(part.microbatch)) + Index(kind)];
  }

  std::size_t indices_;
  std::vector<Span> times_;  // by (stage, microbatch index, kind)
};

}  // namespace penstock
