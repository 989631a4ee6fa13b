// Progress: the progress line with step, loss, tokens per second, bubble and time left.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>

namespace penstock {

// On a terminal, overwrites the line a few times per second. Elsewhere, prints a new line every few
// seconds. Not thread-safe, except that elapsed() may run in parallel with any method.
class Progress {
 public:
  // The steps and the training time of earlier processes.
  struct Earlier {
    std::int64_t steps = 0;
    double seconds = 0;
  };
  struct Figures {
    double loss = 0;
    double bubble = 0;
  };

  Progress(std::FILE* out, std::int64_t tokens_per_step, const Earlier& earlier);

  // Reports that `done` of `steps` steps are done, the last one with the figures `last`. Shows
  // running means. Prints nothing if the last line was printed recently.
  void Report(std::int64_t done, std::int64_t steps, const Figures& last);
  // Ends the line on a terminal.
  void Finish();

  double elapsed() const;  // seconds of training, including the earlier ones
  // Subtracts a pause of the training, in seconds, from the elapsed time.
  void AddPause(double seconds) { pauses_.store(pauses_.load() + seconds); }

 private:
  using Clock = std::chrono::steady_clock;

  std::FILE* out_;
  bool terminal_;
  double tokens_per_step_;
  Earlier earlier_;
  Clock::time_point begin_ = Clock::now();
  std::atomic<double> pauses_ = 0;
  double last_report_ = -1e9;  // seconds
  bool first_ = true;
  Figures smooth_;
  bool open_ = false;  // the line on the terminal has no newline yet
};

}  // namespace penstock
