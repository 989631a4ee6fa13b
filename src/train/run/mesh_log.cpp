#include "train/run/mesh_log.h"

#include <string>
#include <vector>

#include "base/index.h"
#include "base/log.h"
#include "base/system/machine_name.h"

namespace penstock {

Status LogMesh(Collectives& hosts, const HostedRanks& ranks, const Mesh& mesh, std::FILE* log) {
  if (hosts.hosts() == 1 && mesh.data == 1) return {};
  PENSTOCK_TRY(const std::vector<std::string> machines, hosts.AllGather(MachineName()));
  Log(log, "mesh: {} ranks = {} data x {} pipeline, {} process{}\n", mesh.ranks(), mesh.data,
      mesh.pipeline, hosts.hosts(), hosts.hosts() == 1 ? "" : "es");
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const int host = ranks.host_of(rank);
    Log(log, "  rank {}: data {}, pipeline {}, process {} on {}\n", rank, mesh.data_index(rank),
        mesh.pipeline_index(rank), host, machines[Index(host)]);
  }
  return {};
}

}  // namespace penstock
