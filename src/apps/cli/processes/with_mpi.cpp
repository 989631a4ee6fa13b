#include <cstdlib>

#include "cli/command/command.h"
#include "cli/output/print_error.h"
#include "cli/processes/processes.h"
#include "runtime/mpi/mpi_process_group.h"

namespace penstock {

Result<Processes> OpenProcesses() {
  PENSTOCK_TRY(MpiJob job, OpenMpiJob([](const std::string& reason) {
                 if (!reason.empty()) PrintError(reason);
                 std::_Exit(kExitFailed);
               }));
  return Processes{std::move(job.group), job.cores};
}

}  // namespace penstock
