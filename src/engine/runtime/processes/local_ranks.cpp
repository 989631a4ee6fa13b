#include "runtime/processes/local_ranks.h"

#include <algorithm>
#include <utility>

namespace penstock {
namespace {

Status CheckProcess(int processes, int process) {
  if (process >= 0 && process < processes) return {};
  return InvalidArgument("process {}: the processes are 0 to {}", process, processes - 1);
}

}  // namespace

LocalRanks::LocalRanks(std::vector<int> process_of, int process)
    : process_of_(std::move(process_of)), process_(process) {
  for (int rank = 0; rank < ranks(); ++rank) {
    if (has(rank)) here_.push_back(rank);
  }
}

Result<LocalRanks> LocalRanks::Split(int ranks, int processes, int process) {
  PENSTOCK_TRY_STATUS(CheckProcess(processes, process));
  if (processes > ranks)
    return InvalidArgument("{} processes cannot share {} ranks", processes, ranks);
  std::vector<int> process_of;
  for (int rank = 0; rank < ranks; ++rank) {
    process_of.push_back(static_cast<int>(static_cast<std::int64_t>(rank) * processes / ranks));
  }
  return LocalRanks(std::move(process_of), process);
}

Result<LocalRanks> LocalRanks::Of(std::vector<int> process_of, int processes, int process) {
  PENSTOCK_TRY_STATUS(CheckProcess(processes, process));
  for (std::size_t rank = 0; rank < process_of.size(); ++rank) {
    if (process_of[rank] >= 0 && process_of[rank] < processes) continue;
    return InvalidArgument("rank {} is on process {}: the processes are 0 to {}", rank,
                           process_of[rank], processes - 1);
  }
  for (int idle = 0; idle < processes; ++idle) {
    if (std::ranges::find(process_of, idle) != process_of.end()) continue;
    return InvalidArgument("process {} runs no rank: start fewer processes, or give it one", idle);
  }
  return LocalRanks(std::move(process_of), process);
}

LocalRanks LocalRanks::OfPlane(int planes, int plane) const {
  std::vector<int> process_of;
  for (int rank = plane; rank < ranks(); rank += planes)
    process_of.push_back(this->process_of(rank));
  return LocalRanks(std::move(process_of), process_);
}

}  // namespace penstock
