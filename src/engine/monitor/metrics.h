// The metrics of a run: one JSON object per line, for a step or for a held-out loss after it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/append_file.h"
#include "base/result.h"

namespace penstock {

// The figures of a rank in one step.
struct RankMetric {
  double busy = 0;    // seconds in its actions
  double bubble = 0;  // idle share of the step
  std::int64_t peak_activation_bytes = 0;
};

struct StepMetric {
  std::int64_t step = 0;
  double loss = 0;
  double lr = 0;
  double grad_norm = 0;  // global norm before clipping
  bool clipped = false;
  bool skipped = false;                // a gradient was not finite, so the weights did not change
  double bubble = 0;                   // idle share of the step on its busiest rank
  double seconds = 0;                  // of training until the end of the step
  double tokens_per_second = 0;        // of the step; 0 in lines of earlier versions
  std::vector<RankMetric> ranks = {};  // of all processes; empty in lines of earlier versions
};

// The held-out loss after a step.
struct HeldOutMetric {
  std::int64_t step = 0;
  double loss = 0;
};

// Formats a line, including its newline.
std::string MetricLine(const StepMetric& metric);
std::string MetricLine(const HeldOutMetric& metric);
// Parses a line without its newline. Returns nothing if it is incomplete or invalid.
std::optional<StepMetric> ParseMetric(std::string_view line);
std::optional<HeldOutMetric> ParseHeldOut(std::string_view line);

// Reads the lines of steps below `end`, in order. Skips lines that are incomplete or invalid.
// Returns nothing if the file cannot be read.
std::vector<StepMetric> ReadMetrics(const std::string& path, std::int64_t end);
std::vector<HeldOutMetric> ReadHeldOut(const std::string& path, std::int64_t end);

// Errors: kUnavailable if so many steps were skipped that the run has not trained: more than half
// of all steps, or of the last tenth of them.
Status CheckSkipped(const std::vector<StepMetric>& metrics);

// A file of metrics that grows by one line per step. Not thread-safe.
class MetricsFile {
 public:
  // The file starts with the lines of `earlier` and `held_out`, in the order of steps. The first
  // Append or Open creates or replaces it.
  MetricsFile(std::string path, const std::vector<StepMetric>& earlier,
              const std::vector<HeldOutMetric>& held_out = {});

  Status Open();
  Status Append(const StepMetric& metric);
  Status Append(const HeldOutMetric& metric);

 private:
  AppendFile file_;
  std::string earlier_;
};

}  // namespace penstock
