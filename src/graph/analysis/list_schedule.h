// List scheduling on two resources: orders the jobs of a core so that a link works in parallel with
// it.
//
//   core   F1 B1 F2 B2        a job on the core runs from start to end
//   link      f1 b1 f2        the core starts a job on the link and waits for it before the
//                             first job that needs it
//
// At every moment the core starts the jobs that the link can begin. Then, among the jobs that can
// run, it runs the one with the longest path to the end. (Graham, Bounds on Multiprocessing Timing
// Anomalies, 1969; the path length is the upward rank of Topcuoglu et al., HEFT, 2002.) The order
// is deterministic.
#pragma once

#include <span>
#include <vector>

namespace penstock {

struct Job {
  bool on_link = false;
  double seconds = 0;
  std::vector<int> after = {};        // jobs that must end first; their indices are smaller
  std::vector<int> after_start = {};  // jobs that must start first; likewise
};

enum class JobStepKind : unsigned char { kRun, kStart, kWait };
// One step of the core. kStart and kWait refer to link jobs and take no time.
struct JobStep {
  JobStepKind kind;
  int job;

  friend bool operator==(const JobStep&, const JobStep&) = default;
};

struct JobOrder {
  std::vector<JobStep> steps;
  double seconds = 0;  // from the start of the first job to the end of the last
};

// Places each start as early and each wait as late as the order on the core allows. The result is
// never longer than running the jobs in index order with the same rules.
JobOrder ListSchedule(std::span<const Job> jobs);

}  // namespace penstock
