// One line of progress: step, loss, tokens a second, time left.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace penstock {

// On a terminal the line is written over itself a few times a second; elsewhere it is a line now
// and then. Threads: one at a time.
class Progress {
 public:
  Progress(std::FILE* out, std::int64_t tokens_per_step);

  // `done` of `steps` steps are done, the last with `loss`; the line may be left out.
  void Report(std::int64_t done, std::int64_t steps, double loss);
  // Ends the line on a terminal.
  void Finish();

  double elapsed() const;  // seconds since the construction

 private:
  using Clock = std::chrono::steady_clock;

  std::FILE* out_;
  bool terminal_;
  double tokens_per_step_;
  Clock::time_point begin_ = Clock::now();
  double last_report_ = -1e9;  // seconds
  double smooth_loss_ = 0;
  bool open_ = false;  // a line without an end stands on the terminal
};

}  // namespace penstock
