#include "cli/output/progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

namespace penstock {

ProgressBar::ProgressBar(std::size_t total)
    : total_(total), terminal_(isatty(STDERR_FILENO) != 0) {}

ProgressBar::~ProgressBar() {
  if (shown_) fmt::print(stderr, "\r\033[K");
}

void ProgressBar::Show(std::size_t done) {
  constexpr std::size_t kWidth = 40;
  if (!terminal_ || total_ == 0) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  const std::size_t filled = kWidth * done / total_;
  std::string left;
  if (done > 0) {
    const double share = static_cast<double>(total_ - done) / static_cast<double>(done);
    left = fmt::format(", {:.0f} s left", std::ceil(seconds * share));
  }
  fmt::print(stderr, "\r[{}{}] {} of {}{}\033[K", std::string(filled, '#'),
             std::string(kWidth - filled, '.'), done, total_, left);
  std::fflush(stderr);
  shown_ = true;
}

}  // namespace penstock
