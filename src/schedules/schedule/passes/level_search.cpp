#include "schedule/passes/level_search.h"

#include <limits>

namespace penstock {
namespace {

bool Within(double peak, double target) {
  constexpr double kRounding = 1e-9;  // tolerance of sums of activations
  return peak <= target * (1 + kRounding);
}

}  // namespace

Result<Schedule> SearchLevels(const std::function<Result<Schedule>(const Levels&)>& build,
                              const Pricer& price, const std::vector<double>& before,
                              const std::vector<double>& targets) {
  constexpr double kNoMicrobatch = std::numeric_limits<double>::infinity();
  constexpr int kHalvings = 12;  // to 1/4096 of the peak
  Levels low(before.size(), kEveryMicrobatch);
  Levels high = before;
  for (std::size_t r = 0; r < before.size(); ++r) {
    if (Within(before[r], targets[r])) low[r] = high[r] = kNoMicrobatch;
  }
  PENSTOCK_TRY(Schedule best, build(low));
  PENSTOCK_TRY(const Priced most, price(best));
  for (std::size_t r = 0; r < before.size(); ++r) {
    if (Within(most.peak_memory[r], targets[r])) continue;
    return MakeError(ErrorCode::kInfeasible, "rank {} needs {:.4g}, above the limit of {:.4g}", r,
                     most.peak_memory[r], targets[r]);
  }
  for (int halving = 0; halving < kHalvings; ++halving) {
    Levels middle;
    for (std::size_t r = 0; r < before.size(); ++r) {
      middle.push_back(low[r] == kNoMicrobatch ? kNoMicrobatch : (low[r] + high[r]) / 2);
    }
    PENSTOCK_TRY(Schedule schedule, build(middle));
    PENSTOCK_TRY(const Priced priced, price(schedule));
    bool all = true;
    for (std::size_t r = 0; r < before.size(); ++r) {
      const bool within = Within(priced.peak_memory[r], targets[r]);
      all = all && within;
      if (low[r] != kNoMicrobatch) (within ? low : high)[r] = middle[r];
    }
    if (all) best = std::move(schedule);
  }
  // Each rank's highest level within its target; used only if all ranks stay within theirs
  // together.
  PENSTOCK_TRY(Schedule highest, build(low));
  PENSTOCK_TRY(const Priced priced, price(highest));
  for (std::size_t r = 0; r < before.size(); ++r) {
    if (!Within(priced.peak_memory[r], targets[r])) return best;
  }
  return highest;
}

}  // namespace penstock
