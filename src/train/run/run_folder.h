// RunFolder: a run's folder, which one run at a time has to itself. No torch here.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace penstock {

// Holds a lock on the file `.lock` in the folder. The kernel releases it when the process ends in
// any way. Readers of a run's files need no lock.
class RunFolder {
 public:
  // Creates the folder where there is none and locks it. Notes on `log` that the file system has no
  // locks, where it has none. Errors: kInvalidArgument where the folder cannot be created or
  // written to, and where another run holds it, in this process or another: names that process.
  static Result<std::unique_ptr<RunFolder>> Open(const std::string& path, std::FILE* log);
  // Releases the folder, and removes it if Open has created it and it is empty.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  // Whether the folder is still where Open found it: files written now would else go nowhere, or to
  // another run. Any thread. Errors: kUnavailable.
  Status Check() const;

 private:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}
  Status Create();
  Status Lock(std::FILE* log);
  std::string lock_path() const { return path_ + "/.lock"; }

  const std::string path_;
  std::vector<std::string> created_;  // folders, innermost first
  int folder_ = -1;                   // descriptors; -1: none
  int lock_ = -1;
};

}  // namespace penstock
