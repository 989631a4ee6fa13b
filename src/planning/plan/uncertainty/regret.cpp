#include "plan/uncertainty/regret.h"

#include <algorithm>
#include <numeric>

namespace penstock {
namespace {

constexpr std::size_t kSamplesOfBin = 20;
constexpr std::size_t kMostBins = 16;

// Relative times within this are the same: sums of other orders.
constexpr double kRounding = 1e-12;

double FastestOf(const std::vector<double>& times) { return *std::ranges::min_element(times); }

double RegretOf(const std::vector<double>& times, std::size_t candidate) {
  const double regret = times[candidate] / FastestOf(times) - 1;
  return regret <= kRounding ? 0 : regret;
}

using Samples = std::vector<std::size_t>;

double SumOfRegrets(const SampledTimes& times, const Samples& samples, std::size_t candidate) {
  double sum = 0;
  for (const std::size_t sample : samples) sum += RegretOf(times[sample], candidate);
  return sum;
}

std::size_t BestOf(const SampledTimes& times, const Samples& samples) {
  std::size_t best = 0;
  double least = SumOfRegrets(times, samples, 0);
  for (std::size_t candidate = 1; candidate < times.front().size(); ++candidate) {
    const double sum = SumOfRegrets(times, samples, candidate);
    if (sum >= least) continue;
    least = sum;
    best = candidate;
  }
  return best;
}

}  // namespace

std::vector<CandidateRegret> RegretsOf(const SampledTimes& times) {
  std::vector<CandidateRegret> regrets(times.front().size());
  const auto samples = static_cast<double>(times.size());
  for (const std::vector<double>& sample : times) {
    bool is_won = false;
    for (std::size_t i = 0; i < sample.size(); ++i) {
      const double regret = RegretOf(sample, i);
      CandidateRegret& candidate = regrets[i];
      candidate.mean_time += sample[i] / samples;
      candidate.expected += regret / samples;
      candidate.worst = std::max(candidate.worst, regret);
      if (regret > 0 || is_won) continue;
      is_won = true;
      ++candidate.wins;
    }
  }
  return regrets;
}

double RegretLeft(const SampledTimes& times, const std::vector<double>& values) {
  Samples sorted(times.size());
  std::iota(sorted.begin(), sorted.end(), std::size_t{0});
  const double without =
      SumOfRegrets(times, sorted, BestOf(times, sorted)) / static_cast<double>(times.size());
  std::ranges::stable_sort(sorted, {}, [&](std::size_t sample) { return values[sample]; });
  const std::size_t bins = std::clamp<std::size_t>(times.size() / kSamplesOfBin, 1, kMostBins);
  double sum = 0;
  for (std::size_t bin = 0; bin < bins; ++bin) {
    Samples halves[2];
    for (std::size_t i = bin * times.size() / bins; i < (bin + 1) * times.size() / bins; ++i) {
      halves[i % 2].push_back(sorted[i]);
    }
    sum += SumOfRegrets(times, halves[0], BestOf(times, halves[1]));
    sum += SumOfRegrets(times, halves[1], BestOf(times, halves[0]));
  }
  return std::min(sum / static_cast<double>(times.size()), without);
}

}  // namespace penstock
