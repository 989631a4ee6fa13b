// CPU time of calls, for the programs of bench/.
#pragma once

#include <time.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "base/median.h"

namespace penstock {

// The CPU time of this thread.
inline double CpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Returns the median CPU seconds of a call that is repeated at least this often and this long.
template <class Call>
double MedianCpuSeconds(std::size_t least_runs, double least_seconds, Call&& call) {
  std::vector<double> runs;
  double total = 0;
  while (total < least_seconds || runs.size() < least_runs) {
    const double begin = CpuSeconds();
    call();
    runs.push_back(CpuSeconds() - begin);
    total += runs.back();
  }
  return Median(std::move(runs));
}

}  // namespace penstock
