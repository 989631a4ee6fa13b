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

std::string NameOf(const Collectives& hosts, int host) { return hosts.group()->NameOf(host); }

}  // namespace

Status CheckSameProgram(Collectives& hosts) {
  if (hosts.hosts() == 1) return {};
  // A host that cannot read its program is not refused.
  PENSTOCK_TRY(const std::vector<std::string> all, hosts.AllGather(ProgramChecksum().value_or("")));
  for (int host = 1; host < hosts.hosts(); ++host) {
    if (all[host] == all[0] || all[host].empty() || all[0].empty()) continue;
    return InvalidArgument(
        "{} runs another build of Penstock than {} (checksums {} and {}): install the same on all "
        "hosts",
        NameOf(hosts, host), NameOf(hosts, 0), all[host], all[0]);
  }
  return {};
}

Status CheckSameRun(Collectives& hosts, const TrainConfig& config, const Schedule& schedule) {
  if (hosts.hosts() == 1) return {};
  PENSTOCK_TRY(const std::vector<std::string> configs, hosts.AllGather(ToYaml(config)));
  PENSTOCK_TRY(const std::vector<std::string> schedules, hosts.AllGather(WriteCsv(schedule)));
  for (int host = 1; host < hosts.hosts(); ++host) {
    PENSTOCK_TRY(const TrainConfig first, ParseTrainConfig(configs[0], "host 0's configuration"));
    PENSTOCK_TRY(const TrainConfig other,
                 ParseTrainConfig(configs[host], "a host's configuration"));
    for (const KeyDifference& differs : DifferentKeys(first, other)) {
      return InvalidArgument("{} is {} on {} and {} on {}: start all hosts with the same",
                             differs.key, differs.before, NameOf(hosts, 0), differs.now,
                             NameOf(hosts, host));
    }
    if (schedules[host] == schedules[0]) continue;
    return InvalidArgument("{} and {} have different schedules: start all hosts with the same",
                           NameOf(hosts, 0), NameOf(hosts, host));
  }
  return {};
}

}  // namespace penstock
