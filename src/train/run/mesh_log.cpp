#include "train/run/mesh_log.h"

#include <string>
#include <vector>

#include "base/index.h"
#include "base/log.h"
#include "base/system/machine_name.h"

namespace penstock {

Status LogMesh(Collectives& processes, const LocalRanks& ranks, const Mesh& mesh, std::FILE* log) {
  if (processes.processes() == 1 && mesh.data == 1) return {};
  PENSTOCK_TRY(const std::vector<std::string> machines, processes.AllGather(MachineName()));
  Log(log, "mesh: {} ranks = {} data x {} pipeline, {} process{}\n", mesh.ranks(), mesh.data,
      mesh.pipeline, processes.processes(), processes.processes() == 1 ? "" : "es");
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const int process = ranks.process_of(rank);
    Log(log, "  rank {}: data {}, pipeline {}, process {} on {}\n", rank, mesh.data_index(rank),
        mesh.pipeline_index(rank), process, machines[Index(process)]);
  }
  return {};
}

}  // namespace penstock
