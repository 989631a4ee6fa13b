// A bar on standard error that shows how much of some work is done. Without a terminal there, it
// shows nothing.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace penstock {

class ProgressBar {
 public:
  explicit ProgressBar(std::size_t total);
  // Removes the bar.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Redraws the bar. Call it a few times per second.
  void Show(std::size_t done);

 private:
  using Clock = std::chrono::steady_clock;

  const std::size_t total_;
  const bool terminal_;
  const Clock::time_point begin_ = Clock::now();
  bool shown_ = false;
};

}  // namespace penstock
