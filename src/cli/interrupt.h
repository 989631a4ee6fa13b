// Ctrl-C: the first one asks the run to stop, a second one ends the process.
#pragma once

#include <atomic>
#include <csignal>

namespace penstock {

inline std::atomic<bool> interrupted{false};

// From here on; returns what the first Ctrl-C sets.
inline const std::atomic<bool>& CatchInterrupt() {
  std::signal(SIGINT, [](int) {
    interrupted = true;
    std::signal(SIGINT, SIG_DFL);
  });
  return interrupted;
}

}  // namespace penstock
