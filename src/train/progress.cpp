#include "train/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/units.h"

namespace penstock {
namespace {

constexpr double kTerminalSeconds = 0.2;  // between two lines
constexpr double kPlainSeconds = 5;
constexpr double kLossMemory = 0.9;  // of the running mean that is shown

}  // namespace

Progress::Progress(std::FILE* out, std::int64_t tokens_per_step)
    : out_(out),
      terminal_(isatty(fileno(out)) != 0),
      tokens_per_step_(static_cast<double>(tokens_per_step)) {}

double Progress::elapsed() const {
  return std::chrono::duration<double>(Clock::now() - begin_).count();
}

void Progress::Report(std::int64_t done, std::int64_t steps, double loss) {
  smooth_loss_ = done == 1 ? loss : kLossMemory * smooth_loss_ + (1 - kLossMemory) * loss;
  const double now = elapsed();
  const bool due = now - last_report_ >= (terminal_ ? kTerminalSeconds : kPlainSeconds);
  if (!due && done != steps) return;
  last_report_ = now;
  const double seconds_a_step = now / static_cast<double>(done);
  const double left = seconds_a_step * static_cast<double>(steps - done);
  fmt::print(out_, "{}step {}/{}  loss {:.3f}  {:.0f} tokens/s  {} left{}", terminal_ ? "\r" : "",
             done, steps, smooth_loss_, tokens_per_step_ / seconds_a_step,
             left >= 1 ? FormatSeconds(left) : "0 s", terminal_ ? "\033[K" : "\n");
  std::fflush(out_);
  open_ = terminal_;
}

void Progress::Finish() {
  if (open_) fmt::print(out_, "\n");
  open_ = false;
}

}  // namespace penstock
