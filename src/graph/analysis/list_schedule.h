// List scheduling on two resources: which job a core takes next, so that a link works under it.
//
//   core   F1 B1 F2 B2        a job on the core runs from start to end
//   link      f1 b1 f2        a job on the link is started by the core, runs by itself, and is
//                             waited for by the core before the first job that needs it
//
// At every moment the core starts what the link can begin, then runs, among the jobs that could run
// now, the one with the longest way to the end. (Graham, Bounds on Multiprocessing Timing
// Anomalies, 1969; the way to the end is the upward rank of Topcuoglu et al., HEFT, 2002.) The same
// jobs give the same order.
#pragma once

#include <span>
#include <vector>

namespace penstock {

struct Job {
  bool on_link = false;
  double seconds = 0;
  std::vector<int> after = {};        // jobs that must be done before, all of smaller number
  std::vector<int> after_start = {};  // jobs that must have begun before, likewise
};

enum class JobStepKind : unsigned char { kRun, kStart, kWait };
// What the core does. kStart and kWait are of link jobs and take no time of their own.
struct JobStep {
  JobStepKind kind;
  int job;

  friend bool operator==(const JobStep&, const JobStep&) = default;
};

struct JobOrder {
  std::vector<JobStep> steps;
  double seconds = 0;  // from the first job's start to the last one's end
};

// A start stands as early, a wait as late as the order of the jobs on the core allows. Never longer
// than the jobs in the order of their numbers, started and waited for so.
JobOrder ListSchedule(std::span<const Job> jobs);

}  // namespace penstock
