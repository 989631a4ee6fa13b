// RunDescription: what a run's config.yaml and schedule.csv say, as far as monitoring needs it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace penstock {

// What a rank computes in a step: two ranks with equal work should take the same time.
struct RankWork {
  std::int64_t layers = 0;
  int first_stages = 0;  // which have the embedding
  int last_stages = 0;   // which have the head and the loss

  friend bool operator==(const RankWork&, const RankWork&) = default;
};

struct RunDescription {
  std::string name;
  std::string schedule;    // its name, or the file of a CSV
  std::int64_t steps = 0;  // the maximum if there is a time limit
  double seconds = 0;      // time limit; 0: none
  double tokens_per_step = 0;
  std::vector<RankWork> work;  // by rank; empty if unknown
};

// Reads the files of a run's folder. Without a readable schedule.csv, `work` is empty. Errors:
// kNotFound if there is no config.yaml; kInvalidArgument if it is no run's.
Result<RunDescription> ReadDescription(const std::string& folder);

}  // namespace penstock
