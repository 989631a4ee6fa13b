#include "train/log/start_progress.h"

#include "base/log.h"

namespace penstock {
namespace {

constexpr std::chrono::seconds kBetweenLines{3};

}  // namespace

void StartProgress::Report(std::string_view phase, int done, int all, std::string_view part_name,
                           int part, int all_parts) {
  const Clock::time_point now = Clock::now();
  if (out_ == nullptr || now - last_ < kBetweenLines) return;
  last_ = now;
  Log(out_, "{}: {} of {}", phase, done, all);
  if (all_parts > 1) Log(out_, ", {} {} of {}", part_name, part + 1, all_parts);
  Log(out_, "\n");
  std::fflush(out_);
}

}  // namespace penstock
