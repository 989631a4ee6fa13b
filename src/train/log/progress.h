// One line of progress: step, loss, tokens a second, bubble, time left.
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
  // What was done before this process began: steps, and seconds of training.
  struct Earlier {
    std::int64_t steps = 0;
    double seconds = 0;
  };
  struct Figures {
    double loss = 0;
    double bubble = 0;
  };

  Progress(std::FILE* out, std::int64_t tokens_per_step, const Earlier& earlier);

  // `done` of `steps` steps are done, the last with these figures; running means of them are shown.
  // The line may be left out.
  void Report(std::int64_t done, std::int64_t steps, const Figures& last);
  // Ends the line on a terminal.
  void Finish();

  double elapsed() const;  // seconds of training: the earlier ones and those since construction

 private:
  using Clock = std::chrono::steady_clock;

  std::FILE* out_;
  bool terminal_;
  double tokens_per_step_;
  Earlier earlier_;
  Clock::time_point begin_ = Clock::now();
  double last_report_ = -1e9;  // seconds
  bool first_ = true;
  Figures smooth_;
  bool open_ = false;  // a line without an end stands on the terminal
};

}  // namespace penstock
