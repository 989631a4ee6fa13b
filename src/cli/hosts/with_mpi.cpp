#include "cli/hosts/hosts.h"
#include "mpi/mpi_hosts.h"

namespace penstock {

Result<Hosts> OpenHosts() {
  PENSTOCK_TRY(MpiJob job, OpenMpiJob());
  return Hosts{std::move(job.group), job.cores};
}

}  // namespace penstock
