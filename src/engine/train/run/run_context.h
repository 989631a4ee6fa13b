// RunContext: what all parts of a training run share on this process. Private to train/run.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/replicas.h"
#include "config/train_config.h"
#include "runtime/processes/collectives.h"
#include "runtime/processes/local_ranks.h"
#include "schedule/schedule.h"
#include "train/run/run_folder.h"
#include "train/train.h"

namespace penstock {

// Returns the path of the run's folder.
inline std::string RunPath(const TrainConfig& config) {
  return fmt::format("{}/{}", config.folder, config.name);
}

// What the references and pointers refer to must outlive everything that is given the context.
struct RunContext {
  const TrainConfig& config;  // complete: ChooseSchedule has filled in `pipeline`
  const Schedule& schedule;
  Collectives& processes;
  LocalRanks ranks;                   // of the mesh of all planes
  TrainOptions options;               // `cores` is above 0; `log` discards except on the leader
  ClockOffset clock = {};             // of this process
  const RunFolder* folder = nullptr;  // null except on the leader

  std::string path() const { return RunPath(config); }
  std::FILE* log() const { return options.log; }
  int planes() const { return Planes(config.parallel).ranks(); }
  // Returns the ranks of a plane, by rank of the schedule. This process may run none of them.
  LocalRanks RanksOf(int plane) const { return ranks.OfPlane(planes(), plane); }
  // Returns the number of threads of each rank.
  int threads() const { return std::max(1, options.cores / static_cast<int>(ranks.here().size())); }
  bool stops() const { return options.stop != nullptr && options.stop->load(); }
  // Returns whether a stop was requested on any process. Called on all processes.
  Result<bool> StopRequested() const { return processes.Any(stops()); }
};

}  // namespace penstock
