// What is kept of every step of a run: one JSON object a line. No torch here.
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
  double grad_norm = 0;  // of all gradients together, before they are clipped
  bool clipped = false;
  bool skipped = false;  // a gradient was not finite: the weights stayed as they were
  double bubble = 0;     // idle share of the step on its busiest rank
  double seconds = 0;    // of training until the step's end
};

// With the line's end.
std::string MetricLine(const StepMetric& metric);

// The lines of steps below `end`, in their order; what is no whole line of ours is left out, as is
// a file that cannot be read.
std::vector<StepMetric> ReadMetrics(const std::string& path, std::int64_t end);

// Errors: kUnavailable where so many of a run's steps were skipped that it has not trained: more
// than half of all steps, or of the last tenth of them.
Status CheckSkipped(const std::vector<StepMetric>& metrics);

// A file of metrics that grows by one line per step. Each is written by one call, so that a process
// that is killed leaves whole lines; a line that does not fit on the disk is removed again.
// Threads: one at a time.
class MetricsFile {
 public:
  // `earlier` are the lines that stand before what is appended. The file itself is made, or
  // replaced, by the first Append or Open.
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
  std::int64_t size_ = 0;  // of its whole lines, in bytes
};

}  // namespace penstock
