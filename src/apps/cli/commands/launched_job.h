// A job that this process starts: a command, and all processes that the command starts.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/result.h"

namespace penstock {

struct JobEnd {
  int code = 0;     // exit code of the command; 128 + N if signal N ended it
  int stopped = 0;  // the signal that requested a stop and was passed on, or 0
  double seconds = 0;
};

// Runs jobs, one at a time. Passes SIGINT, SIGTERM, SIGHUP and SIGUSR1 on to the job, unless this
// process was started with them ignored. Requires: this process has one thread and no children.
class JobRunner {
 public:
  // Blocks these signals for the rest of the process.
  JobRunner();

  // Returns after the command has ended. If it failed, no process of the job is left on this
  // machine, nor any file of its mpirun. An mpirun that does not notice the end of all its
  // processes, for example because it waits for the rest of what a stranger has sent to its port,
  // is killed. Errors: kNotFound if the command cannot be started.
  Result<JobEnd> Run(std::vector<std::string> command);

  // Waits. Returns early with the signal that requested a stop; otherwise 0.
  int Pause(std::chrono::milliseconds time) const;

 private:
  Result<pid_t> Start(std::vector<std::string>& command) const;

  sigset_t caught_;    // the signals above, and SIGCHLD
  sigset_t original_;  // the signals that were blocked before
};

}  // namespace penstock
