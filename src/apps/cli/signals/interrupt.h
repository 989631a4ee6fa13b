// Ctrl-C: the first requests the run to stop, the second ends the process.
#pragma once

#include <atomic>
#include <csignal>

#include "base/system/repeated_signal.h"

namespace penstock {

inline std::atomic<bool> interrupted{false};
inline StopSignals interrupts;

// Installs the handler. Returns the flag that the first Ctrl-C sets.
inline const std::atomic<bool>& CatchInterrupt() {
  std::signal(SIGINT, [](int signal) {
    if (interrupts.Classify() == StopSignal::kSecond) EndBySignal(signal);
    interrupted = true;
  });
  return interrupted;
}

// Removes the handler: the next Ctrl-C ends the process.
inline void ReleaseInterrupt() { std::signal(SIGINT, SIG_DFL); }

}  // namespace penstock
