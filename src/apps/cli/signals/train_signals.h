// The signals of a training run. SIGINT, SIGTERM and SIGUSR2: the first requests a stop, the second
// ends the process; SIGUSR2 is for Open MPI's mpirun, which passes it on at once and without a time
// limit. SIGUSR1 requests the timeline of the current step.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <string_view>

#include "base/system/repeated_signal.h"

namespace penstock {

inline std::atomic<bool> stop_requested{false};
inline std::atomic<int> stop_signal{0};  // the first one; 0: none came
inline StopSignals stop_signals;

// Installs the handlers of the others. Returns the flag that the first signal sets.
inline const std::atomic<bool>& CatchStopSignals() {
  const auto handler = [](int signal) {
    const StopSignal kind = stop_signals.Classify();
    if (kind == StopSignal::kSecond) EndBySignal(signal);
    if (kind != StopSignal::kFirst) return;
    stop_signal = signal;
    stop_requested = true;
    // Programs send SIGTERM, such as mpirun after a failure, whose one line is enough.
    if (signal == SIGTERM) return;
    constexpr std::string_view kNotice =
        "\npenstock: stopping after the current step; a second signal stops at once\n";
    const int error = errno;
    // If this fails, there is nobody to report it to.
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kNotice.data(), kNotice.size());
    errno = error;
  };
  std::signal(SIGINT, handler);
  std::signal(SIGTERM, handler);
  std::signal(SIGUSR2, handler);
  return stop_requested;
}

inline std::atomic<bool> trace_requested{false};

// Installs the handler of SIGUSR1. Returns the flag that the signal sets.
inline std::atomic<bool>& CatchTraceSignal() {
  static_assert(std::atomic<bool>::is_always_lock_free);  // so a handler may set it
  std::signal(SIGUSR1, [](int) { trace_requested = true; });
  return trace_requested;
}

}  // namespace penstock
