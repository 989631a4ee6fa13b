// RunFolder: the folder of a run, which only one run may use at a time. No torch here.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace penstock {

// Locks the file `.lock` in the folder. The kernel releases the lock however the process ends.
// Readers of a run's files need no lock.
class RunFolder {
 public:
  // Creates the folder if necessary and locks it. Logs if the file system has no locks. Errors:
  // kInvalidArgument if the folder cannot be created or written, or if another run uses it. The
  // message names the process of that run.
  static Result<std::unique_ptr<RunFolder>> Open(const std::string& path, std::FILE* log);
  // Releases the folder, and removes it if Open created it and it is empty.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  // Checks that the path still leads to the folder that was opened. Otherwise, files would be lost
  // or written to another run's folder. Thread-safe. Errors: kUnavailable.
  Status Check() const;

 private:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}
  Status Create();
  Status Lock(std::FILE* log);
  std::string lock_path() const { return path_ + "/.lock"; }

  const std::string path_;
  std::vector<std::string> created_;  // folders
  int folder_ = -1;                   // descriptors; -1: none
  int lock_ = -1;
};

}  // namespace penstock
