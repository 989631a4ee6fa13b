#include "cli/processes/run_on_processes.h"

#include <csignal>

#include "cli/output/print_error.h"

namespace penstock {

Result<int> RunOnProcesses(Processes processes, const std::function<Result<int>()>& run) {
  ProcessGroup* const group = processes.group.get();
  Result<int> code = run();
  if (group == nullptr) return code;
  if (!code) {
    const Error error = code.error();
    group->Abort(error);
    const int reporter = group->lost() == 0 ? 1 : 0;
    if (group->process() == reporter) PrintError(error.line());
    code = ExitCodeOf(group->reason());
    // Nothing is left to stop, so a launcher may end this process at once.
    std::signal(SIGTERM, SIG_DFL);
  }
  group->Leave();
  return code;
}

}  // namespace penstock
