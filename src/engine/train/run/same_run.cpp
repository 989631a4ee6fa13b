#include "train/run/same_run.h"

#include <string>
#include <vector>

#include "base/files.h"
#include "checkpoint/crc32.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

// Returns the checksum of this process's executable file.
Result<std::string> ProgramChecksum() {
  PENSTOCK_TRY(const std::string program, ReadFile("/proc/self/exe"));
  return FormatCrc32(Crc32(program));
}

std::string NameOf(const Collectives& processes, int process) {
  return processes.group()->NameOf(process);
}

}  // namespace

Status CheckSameProgram(Collectives& processes) {
  if (processes.processes() == 1) return {};
  // A process that cannot read its program is not refused.
  PENSTOCK_TRY(const std::vector<std::string> all,
               processes.AllGather(ProgramChecksum().value_or("")));
  for (int process = 1; process < processes.processes(); ++process) {
    if (all[process] == all[0] || all[process].empty() || all[0].empty()) continue;
    return InvalidArgument(
        "{} runs another build of Penstock than {} (checksums {} and {}): install the same on all "
        "processes",
        NameOf(processes, process), NameOf(processes, 0), all[process], all[0]);
  }
  return {};
}

Status CheckSameRun(Collectives& processes, const TrainConfig& config, const Schedule& schedule) {
  if (processes.processes() == 1) return {};
  PENSTOCK_TRY(const std::vector<std::string> configs, processes.AllGather(ToYaml(config)));
  PENSTOCK_TRY(const std::vector<std::string> schedules, processes.AllGather(WriteCsv(schedule)));
  for (int process = 1; process < processes.processes(); ++process) {
    PENSTOCK_TRY(const TrainConfig first,
                 ParseTrainConfig(configs[0], "process 0's configuration"));
    PENSTOCK_TRY(const TrainConfig other,
                 ParseTrainConfig(configs[process], "a process's configuration"));
    for (const KeyDifference& differs : DifferentKeys(first, other)) {
      return InvalidArgument("{} is {} on {} and {} on {}: start all processes with the same",
                             differs.key, differs.before, NameOf(processes, 0), differs.now,
                             NameOf(processes, process));
    }
    if (schedules[process] == schedules[0]) continue;
    return InvalidArgument("{} and {} have different schedules: start all processes with the same",
                           NameOf(processes, 0), NameOf(processes, process));
  }
  return {};
}

}  // namespace penstock
