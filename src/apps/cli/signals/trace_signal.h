// SIGUSR1 of a training run: requests the timeline of the current step.
#pragma once

#include <atomic>
#include <csignal>

namespace penstock {

inline std::atomic<bool> trace_requested{false};

// Installs the handler. Returns the flag that the signal sets.
inline std::atomic<bool>& CatchTraceSignal() {
  static_assert(std::atomic<bool>::is_always_lock_free);  // so a handler may set it
  std::signal(SIGUSR1, [](int) { trace_requested = true; });
  return trace_requested;
}

}  // namespace penstock
