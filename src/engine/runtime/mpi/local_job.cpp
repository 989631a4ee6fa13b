#include "runtime/mpi/local_job.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "base/text/numbers.h"

namespace penstock {
namespace {

std::string_view Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

bool IsJobOfOneMachine() {
  const std::string_view processes = Variable("OMPI_COMM_WORLD_SIZE");
  if (!processes.empty()) return processes == Variable("OMPI_COMM_WORLD_LOCAL_SIZE");
  const std::string_view nodes = Variable("SLURM_STEP_NUM_NODES");
  if (!nodes.empty()) return nodes == "1";
  return Variable("PMIX_RANK").empty() && Variable("PMI_RANK").empty();
}

int LaunchedRank() {
  for (const char* const name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    const Result<int> rank = ParseInt(std::string(Variable(name)));
    if (rank) return *rank;
  }
  return 0;
}

void UseSharedMemoryOnly() {
  setenv("OMPI_MCA_pml", "ob1", /*overwrite=*/0);
  setenv("OMPI_MCA_btl", "self,vader", /*overwrite=*/0);
}

}  // namespace penstock
