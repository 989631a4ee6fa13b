// The combinations of a sweep: every schedule with every value of every key.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/options/schedule_options.h"

namespace penstock {

// Combinations have numbers from 0 to size() - 1. The schedule changes fastest, then the last key,
// so schedules with equal values are adjacent.
class SweepPlan {
 public:
  // Requires: `options` after ReadSources, with a sweep. Errors: kInvalidArgument for a sweep
  // without schedules, for a key that is also set to one value, for values that its option never
  // accepts, and for options that no schedule reads.
  static Result<SweepPlan> Of(const ScheduleOptions& options);

  // What all combinations have in common.
  const ScheduleOptions& options() const { return options_; }
  // The keys and their values, without the schedules.
  const std::vector<SweepAxis>& axes() const { return axes_; }
  const std::vector<Candidate>& schedules() const { return schedules_; }

  std::size_t size() const { return size_; }
  std::size_t ScheduleOf(std::size_t combination) const { return combination % schedules_.size(); }
  // The index of the value that a combination has of axes()[axis].
  std::size_t ValueOf(std::size_t combination, std::size_t axis) const;
  // The schedule with its own and the swept options.
  Candidate At(std::size_t combination) const;
  // Combinations in the same group are compared with each other: those that differ only in the
  // schedule, or all of them if there is one schedule.
  std::size_t GroupOf(std::size_t combination) const;

 private:
  Status FindSchedules(const ScheduleOptions& options);
  // The options with jitter if a key varies it, so that they read --seed and --runs.
  ScheduleOptions WithJitter() const;
  Status CheckKeys() const;
  Status CheckValues() const;
  Status Count();

  ScheduleOptions options_;
  std::vector<SweepAxis> axes_;
  std::vector<Candidate> schedules_;
  std::vector<std::size_t> strides_;  // by axis: the distance of combinations with its next value
  std::size_t size_ = 0;
};

}  // namespace penstock
