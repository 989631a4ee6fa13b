#include "cli/processes/processes.h"

namespace penstock {

Result<Processes> OpenProcesses() { return Processes(); }

}  // namespace penstock
