// StartProgress: progress lines while a run starts. A short start prints nothing.
#pragma once

#include <chrono>
#include <cstdio>
#include <string_view>

namespace penstock {

class StartProgress {
 public:
  // If `out` is null, prints nothing.
  explicit StartProgress(std::FILE* out) : out_(out) {}

  // Prints "PHASE: DONE of ALL" if some seconds have passed since the last line or the
  // construction. If `all_parts` is above 1, also prints the next part.
  void Report(std::string_view phase, int done, int all, std::string_view part_name = {},
              int part = 0, int all_parts = 1);

 private:
  using Clock = std::chrono::steady_clock;

  std::FILE* out_;
  Clock::time_point last_ = Clock::now();
};

}  // namespace penstock
