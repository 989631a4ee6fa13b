// The combinations of a sweep: every schedule with every value of every key.
#pragma once

#include <cstddef>
#include <vector>

#include "base/result.h"
#include "scenario/scenario.h"

namespace penstock {

// What a sweep does with its scenario.
inline constexpr Purpose kSweepPurpose{.has_runs = true, .sweeps = true};

// Combinations have numbers from 0 to size() - 1. The schedule changes fastest, then the last key,
// so schedules with equal values are adjacent.
class SweepPlan {
 public:
  // Requires: the scenario has a sweep. Errors: kInvalidArgument for a sweep
  // without schedules, for a key that is also set to one value, for values that its field never
  // accepts, and for fields that no schedule reads.
  static Result<SweepPlan> Of(const Scenario& scenario);

  // What all combinations have in common.
  const Scenario& scenario() const { return scenario_; }
  // The keys and their values, without the schedules.
  const std::vector<SweepAxis>& axes() const { return axes_; }
  const std::vector<Candidate>& schedules() const { return schedules_; }

  std::size_t size() const { return size_; }
  std::size_t ScheduleOf(std::size_t combination) const { return combination % schedules_.size(); }
  // The index of the value that a combination has of axes()[axis].
  std::size_t ValueOf(std::size_t combination, std::size_t axis) const;
  // The schedule with its own and the swept fields.
  Candidate At(std::size_t combination) const;
  // Combinations in the same group are compared with each other: combinations that differ only in
  // the schedule, or all if there is one schedule.
  std::size_t GroupOf(std::size_t combination) const;

 private:
  Status FindSchedules();
  // The scenario with jitter if a field varies it, so that `seed` and `runs` have an effect.
  Scenario WithJitter() const;
  Status CheckKeys() const;
  Status CheckValues() const;
  Status Count();

  Scenario scenario_;
  std::vector<SweepAxis> axes_;
  std::vector<Candidate> schedules_;
  std::vector<std::size_t> strides_;  // by axis: the distance of combinations with its next value
  std::size_t size_ = 0;
};

}  // namespace penstock
