#include "train/log/progress.h"

#include <unistd.h>

#include <cmath>

#include "base/log.h"
#include "base/units.h"

namespace penstock {
namespace {

constexpr double kTerminalSeconds = 0.2;  // between two updates
constexpr double kPlainSeconds = 5;
constexpr double kDecay = 0.9;  // of the running means

double Mix(double before, double now) {
  if (!std::isfinite(before)) return now;  // a skipped step has no finite loss
  return kDecay * before + (1 - kDecay) * now;
}

}  // namespace

Progress::Progress(std::FILE* out, std::int64_t tokens_per_step, const Earlier& earlier)
    : out_(out),
      terminal_(isatty(fileno(out)) != 0),
      tokens_per_step_(static_cast<double>(tokens_per_step)),
      earlier_(earlier) {}

double Progress::elapsed() const {
  const std::chrono::duration<double> run = Clock::now() - begin_;
  return earlier_.seconds + run.count() - pauses_.load();
}

void Progress::Report(std::int64_t done, std::int64_t steps, const Figures& last) {
  smooth_ = first_ ? last : Figures{Mix(smooth_.loss, last.loss), Mix(smooth_.bubble, last.bubble)};
  first_ = false;
  const double now = elapsed() - earlier_.seconds;
  const bool due = now - last_report_ >= (terminal_ ? kTerminalSeconds : kPlainSeconds);
  if (!due && done != steps) return;
  last_report_ = now;
  const double seconds_per_step = now / static_cast<double>(done - earlier_.steps);
  const double left = seconds_per_step * static_cast<double>(steps - done);
  Log(out_, "{}step {}/{}  loss {:.3f}  {:.0f} tokens/s  bubble {:.1f}%  {} left{}",
      terminal_ ? "\r" : "", done, steps, smooth_.loss, tokens_per_step_ / seconds_per_step,
      100 * smooth_.bubble, left >= 1 ? FormatSeconds(left) : "0 s", terminal_ ? "\033[K" : "\n");
  std::fflush(out_);
  open_ = terminal_;
}

void Progress::Finish() {
  if (open_) Log(out_, "\n");
  open_ = false;
}

}  // namespace penstock
