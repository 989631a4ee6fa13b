#include <cstdlib>

#include "cli/command/command.h"
#include "cli/hosts/hosts.h"
#include "cli/output/print_error.h"
#include "runtime/mpi/mpi_hosts.h"

namespace penstock {

Result<Hosts> OpenHosts() {
  PENSTOCK_TRY(MpiJob job, OpenMpiJob([](const std::string& reason) {
                 if (!reason.empty()) PrintError(reason);
                 std::_Exit(kExitFailed);
               }));
  return Hosts{std::move(job.group), job.cores};
}

}  // namespace penstock
