// RunWatcher: follows a run by reading the files in its folder, which it never changes.
#pragma once

#include <string>

#include "base/result.h"
#include "monitor/follow_metrics.h"
#include "monitor/run_status.h"

namespace penstock {

// Not thread-safe.
class RunWatcher {
 public:
  // `run` is the folder of a run, or the name of one under runs/. Neither needs to exist yet.
  explicit RunWatcher(const std::string& run);

  // Reads what has changed. The status is valid until the next Read. Errors: kInvalidArgument if
  // config.yaml is no run's.
  Result<RunStatus> Read();

  // The folder that a run is expected in.
  const std::string& folder() const { return folder_; }

 private:
  Status ReadConfig();

  const std::string folder_;
  MetricsFollower metrics_;
  std::string config_;  // the text that `run_` is from
  RunDescription run_;
};

}  // namespace penstock
