// MetricsFollower: reads a run's metrics.jsonl while the run writes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "monitor/metrics.h"

namespace penstock {

// Not thread-safe.
class MetricsFollower {
 public:
  explicit MetricsFollower(std::string path) : path_(std::move(path)) {}

  // Reads the complete lines that the file has gained. Starts over if the file was replaced, as a
  // resumed run does. A file that does not exist has no lines.
  void Read();

  // The steps in the file, in order.
  const std::vector<StepMetric>& metrics() const { return metrics_; }
  // The time of the last change of the file, in seconds since 1970. 0 without a file.
  double changed() const { return changed_; }

 private:
  void StartOver();
  void ReadFrom(int descriptor);
  void AddLine(std::string_view line);

  const std::string path_;
  std::uint64_t device_ = 0, inode_ = 0;  // of the file that was read
  std::int64_t offset_ = 0;               // of the first byte that was not read
  std::string partial_;                   // the start of a line whose end is not written yet
  std::vector<StepMetric> metrics_;
  double changed_ = 0;
};

}  // namespace penstock
