// Lines that say how far the start of a long run is; a short one stays silent.
#pragma once

#include <chrono>
#include <cstdio>
#include <string_view>

namespace penstock {

class StartProgress {
 public:
  // `out` may be null: then nothing is printed.
  explicit StartProgress(std::FILE* out) : out_(out) {}

  // Prints "PHASE: DONE of ALL" where some seconds have passed since the last line, or since the
  // object was made; with `all_parts` above 1 also which part of the next one comes.
  void Report(std::string_view phase, int done, int all, std::string_view part_name = {},
              int part = 0, int all_parts = 1);

 private:
  using Clock = std::chrono::steady_clock;

  std::FILE* out_;
  Clock::time_point last_ = Clock::now();
};

}  // namespace penstock
