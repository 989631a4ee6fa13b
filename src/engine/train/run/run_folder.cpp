#include "train/run/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/folders.h"
#include "base/index.h"
#include "base/log.h"
#include "base/system/machine_name.h"

namespace penstock {
namespace {

// Returns whether the path still leads to the open file.
bool LeadsTo(const std::string& path, int descriptor) {
  struct stat named {};
  struct stat opened {};
  return stat(path.c_str(), &named) == 0 && fstat(descriptor, &opened) == 0 &&
         named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

std::string ThisProcess() { return fmt::format("process {} on {}", getpid(), MachineName()); }

// Returns the process that the holder of the lock wrote to the file. Empty if it has not written
// yet.
std::string HolderOf(int lock) {
  std::array<char, 300> text{};
  const ssize_t length = pread(lock, text.data(), text.size(), 0);
  return length > 0 ? std::string(text.data(), Index(length)) : "";
}

bool HasNoLocks(int error) {
  return error == ENOSYS || error == EOPNOTSUPP || error == ENOLCK || error == EINVAL;
}

}  // namespace

Result<std::unique_ptr<RunFolder>> RunFolder::Open(const std::string& path, std::FILE* log) {
  std::unique_ptr<RunFolder> folder(new RunFolder(path));
  PENSTOCK_TRY_STATUS(folder->Create());
  PENSTOCK_TRY_STATUS(folder->Lock(log));
  return folder;
}

RunFolder::~RunFolder() {
  if (lock_ >= 0) {
    // Removes the file before the lock is released, so that no other run can lock a removed file.
    if (LeadsTo(lock_path(), lock_)) unlink(lock_path().c_str());
    close(lock_);
  }
  if (folder_ >= 0) close(folder_);
  RemoveFolders(created_);
}

Status RunFolder::Create() {
  PENSTOCK_TRY_STATUS(CreateFolders(path_, &created_));
  folder_ = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_ >= 0) return {};
  return InvalidArgument("cannot open the folder {}: {}", path_, std::strerror(errno));
}

Status RunFolder::Lock(std::FILE* log) {
  for (;;) {
    const int lock = open(lock_path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (lock < 0) {
      return InvalidArgument("cannot write to the folder {}: {}", path_, std::strerror(errno));
    }
    if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      const std::string holder = HolderOf(lock);
      if (HasNoLocks(error)) {
        Log(log, "{}: its file system has no locks ({}): make sure that no other run uses it\n",
            path_, std::strerror(error));
        lock_ = lock;
        return {};
      }
      close(lock);
      return InvalidArgument(
          "{} is in use by another run, {}: choose another name (name=...), or wait until "
          "that run ends",
          path_, holder.empty() ? "in an unknown process" : holder);
    }
    if (LeadsTo(lock_path(), lock)) {
      lock_ = lock;
      break;
    }
    close(lock);  // its last holder has just removed it
  }
  const std::string text = ThisProcess();
  if (ftruncate(lock_, 0) != 0 ||
      pwrite(lock_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    return MakeError(ErrorCode::kUnavailable, "cannot write {}: {}", lock_path(),
                     std::strerror(errno));
  }
  return {};
}

Status RunFolder::Check() const {
  if (LeadsTo(path_, folder_)) return {};
  return MakeError(ErrorCode::kUnavailable,
                   "the run's folder {} was deleted or moved during the run", path_);
}

}  // namespace penstock
