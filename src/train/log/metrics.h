// The metrics of a run: one JSON object per step and line. No torch here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace penstock {

struct StepMetric {
  std::int64_t step = 0;
  double loss = 0;
  double lr = 0;
  double grad_norm = 0;  // global norm before clipping
  bool clipped = false;
  bool skipped = false;  // a gradient was not finite, so the weights did not change
  double bubble = 0;     // idle share of the step on its busiest rank
  double seconds = 0;    // of training until the end of the step
};

// Formats a line, including its newline.
std::string MetricLine(const StepMetric& metric);

// Reads the lines of steps below `end`, in order. Skips lines that are incomplete or invalid.
// Returns nothing if the file cannot be read.
std::vector<StepMetric> ReadMetrics(const std::string& path, std::int64_t end);

// Errors: kUnavailable if so many steps were skipped that the run has not trained: more than half
// of all steps, or of the last tenth of them.
Status CheckSkipped(const std::vector<StepMetric>& metrics);

// A file of metrics that grows by one line per step. One call writes a line, so a killed process
// leaves complete lines. If a line does not fit on the disk, its written part is removed.
// Not thread-safe.
class MetricsFile {
 public:
  // The file starts with the lines of `earlier`. The first Append or Open creates or replaces it.
  MetricsFile(std::string path, const std::vector<StepMetric>& earlier);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  Status Open();
  Status Append(const StepMetric& metric);

 private:
  std::string path_;
  std::string earlier_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;  // of its complete lines, in bytes
};

}  // namespace penstock
