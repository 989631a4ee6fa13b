#include "interop/traces/all_ranks.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace penstock {
namespace {

// The ranks of the files in the numbering of the whole job; empty if a file does not say its own.
std::vector<int> RanksOf(const std::vector<TraceFile>& files) {
  std::vector<int> ranks;
  for (const TraceFile& file : files) {
    if (!file.rank) return {};
    ranks.push_back(*file.rank);
  }
  std::ranges::sort(ranks);
  return ranks;
}

// A pipeline is a process group, or a whole number of pipelines is the job.
bool CanBePipeline(const std::vector<int>& ranks, const TraceFile& file) {
  const int count = static_cast<int>(ranks.size());
  if (count == 1 || file.groups.empty()) return file.world_size % count == 0 && count > 1;
  return std::ranges::any_of(file.groups, [&](std::vector<int> group) {
    std::ranges::sort(group);
    return group == ranks;
  });
}

}  // namespace

Status RequireAllRanks(const std::vector<TraceFile>& files, const std::vector<RankActions>& ranks) {
  const TraceFile& first = files.front();
  if (first.world_size == 1 || (ranks.size() > 1 && files.size() == 1)) return {};
  const std::vector<int> recorded = RanksOf(files);
  if (!recorded.empty() && first.world_size > 1 && !CanBePipeline(recorded, first)) {
    return InvalidArgument(
        "rank{} {} of {}: not all ranks of a pipeline; give a folder with the trace of each",
        recorded.size() == 1 ? "" : "s", fmt::join(recorded, ", "), first.world_size);
  }
  if (ranks.size() > 1) return {};
  return InvalidArgument(
      "all actions are of one rank ({}); give a folder with a trace of each rank, or a rule "
      "that says what distinguishes ranks",
      ranks.front().source);
}

}  // namespace penstock
