// SIGINT and SIGTERM of a training run: the first asks it to stop, a second one ends the process.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <string_view>

namespace penstock {

inline std::atomic<bool> stop_requested{false};
inline std::atomic<int> stop_signal{0};  // the first one; 0: none came

// From here on; returns what the first signal sets.
inline const std::atomic<bool>& CatchStopSignals() {
  const auto handler = [](int signal) {
    const int error = errno;
    stop_signal = signal;
    stop_requested = true;
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
    constexpr std::string_view kNotice =
        "\npenstock: stopping after the step at hand; a second signal stops at once\n";
    // Nothing can be done where it fails.
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kNotice.data(), kNotice.size());
    errno = error;
  };
  std::signal(SIGINT, handler);
  std::signal(SIGTERM, handler);
  return stop_requested;
}

}  // namespace penstock
