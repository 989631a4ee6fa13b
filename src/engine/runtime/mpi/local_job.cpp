#include "runtime/mpi/local_job.h"

#include <cstdlib>
#include <string_view>

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

void UseSharedMemoryOnly() {
  setenv("OMPI_MCA_pml", "ob1", /*overwrite=*/0);
  setenv("OMPI_MCA_btl", "self,vader", /*overwrite=*/0);
}

}  // namespace penstock
