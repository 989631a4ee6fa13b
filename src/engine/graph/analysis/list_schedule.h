// List scheduling on two resources: orders the jobs of a core so that a link works in parallel.
//
//   core   F1 B1 F2 B2        a job on the core runs from start to end
//   link      f1 b1 f2        the core starts a job on the link, and waits for it before the
//                             first job that depends on it
//
// The core starts a link job as soon as the job can run. Otherwise it runs the job with the longest
// path to the end among the jobs that can run. (Graham, Bounds on Multiprocessing Timing
// Anomalies, 1969; the path length is the upward rank of Topcuoglu et al., HEFT, 2002.) The order
// is deterministic.
#pragma once

#include <span>
#include <vector>

namespace penstock {

struct Job {
  bool on_link = false;
  double seconds = 0;
  // Predecessors that must have ended, and predecessors that must have started. All of them have
  // smaller indices.
  std::vector<int> after = {};
  std::vector<int> after_start = {};
  // A job on the core that runs only while no other one can.
  bool fills = false;
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

// Returns an order of the jobs in which each start is as early and each wait as late as the order
// on the core allows. The result takes at most as long as the jobs in index order under these
// rules.
JobOrder ListSchedule(std::span<const Job> jobs);

}  // namespace penstock
