#include "monitor/stragglers.h"

#include <algorithm>

#include "base/index.h"

namespace penstock {
namespace {

using Steps = std::span<const StepMetric>;

constexpr std::size_t kMostCompared = 1000;  // steps, evenly spaced; so that long runs cost no more

Steps Recent(Steps metrics) { return metrics.last(std::min(metrics.size(), Index(kRecentSteps))); }

double RecentBusy(Steps metrics, std::size_t rank) {
  std::vector<double> busy;
  for (const StepMetric& metric : Recent(metrics)) busy.push_back(metric.ranks[rank].busy);
  return MedianValue(std::move(busy));
}

// Returns the rank's busy time relative to its peers'; 0 without peers.
double RatioToPeers(const std::vector<double>& busy, const std::vector<RankWork>& work,
                    std::size_t rank) {
  std::vector<double> peers;
  for (std::size_t other = 0; other < work.size(); ++other) {
    if (other != rank && work[other] == work[rank]) peers.push_back(busy[other]);
  }
  const double median = MedianValue(std::move(peers));
  return median > 0 ? busy[rank] / median : 0;
}

// Returns the median over the steps of the rank's busy time relative to the other ranks.
double RatioToOthers(Steps metrics, std::size_t rank) {
  std::vector<double> ratios;
  std::vector<double> others;
  for (std::size_t at = 0; at < metrics.size(); at += metrics.size() / kMostCompared + 1) {
    const StepMetric& metric = metrics[at];
    others.clear();
    for (std::size_t other = 0; other < metric.ranks.size(); ++other) {
      if (other != rank) others.push_back(metric.ranks[other].busy);
    }
    const double median = MedianValue(others);
    if (median > 0) ratios.push_back(metric.ranks[rank].busy / median);
  }
  return MedianValue(std::move(ratios));
}

// Returns how many times longer the rank takes than in the earlier steps; 0 if these are too few.
double RatioToPast(Steps metrics, std::size_t rank) {
  const Steps recent = Recent(metrics);
  const Steps past = metrics.first(metrics.size() - recent.size());
  if (past.size() < Index(kRecentSteps)) return 0;
  const double before = RatioToOthers(past, rank);
  return before > 0 ? RatioToOthers(recent, rank) / before : 0;
}

}  // namespace

double MedianValue(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

std::vector<Straggler> FindStragglers(std::span<const StepMetric> metrics,
                                      const std::vector<RankWork>& work) {
  if (metrics.size() < Index(kRecentSteps)) return {};
  const std::size_t ranks = metrics.back().ranks.size();
  std::vector<double> busy;
  for (std::size_t rank = 0; rank < ranks; ++rank) busy.push_back(RecentBusy(metrics, rank));
  std::vector<Straggler> stragglers;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const double to_peers = work.size() == ranks ? RatioToPeers(busy, work, rank) : 0;
    const double to_past = RatioToPast(metrics, rank);
    const double factor = std::max(to_peers, to_past);
    if (factor <= kStragglerFactor) continue;
    stragglers.push_back({static_cast<int>(rank), factor, to_peers >= to_past});
  }
  return stragglers;
}

}  // namespace penstock
