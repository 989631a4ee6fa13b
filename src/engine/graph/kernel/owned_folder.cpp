#include "graph/kernel/owned_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/files.h"
#include "base/index.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kOnlyUser = 0700;
constexpr mode_t kWritableByOthers = S_IWGRP | S_IWOTH;

template <class... Args>
tl::unexpected<Error> Unusable(fmt::format_string<Args...> format, Args&&... args) {
  return MakeError(ErrorCode::kUnavailable, format, std::forward<Args>(args)...);
}

// Creates the folder and its missing parents with mode 0700.
Status CreateFolders(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return {};
  if (path.has_parent_path() && path.parent_path() != path) {
    PENSTOCK_TRY_STATUS(CreateFolders(path.parent_path()));
  }
  if (mkdir(path.c_str(), kOnlyUser) == 0 || errno == EEXIST) return {};
  return Unusable("cannot create the folder {}: {}", path.string(), std::strerror(errno));
}

// Checks the owner and mode of the folder. Sets mode 0700, which also protects files that are
// created with a permissive umask.
Status CheckFolder(int descriptor, const std::string& path) {
  struct stat status = {};
  if (fstat(descriptor, &status) != 0) {
    return Unusable("cannot examine the folder {}: {}", path, std::strerror(errno));
  }
  if (status.st_uid != geteuid()) {
    return Unusable("the folder {} belongs to user {}, but this process runs as user {}", path,
                    status.st_uid, geteuid());
  }
  if ((status.st_mode & kWritableByOthers) != 0) {
    return Unusable(
        "other users may write to the folder {}; remove its files and run 'chmod 700 {}'", path,
        path);
  }
  if ((status.st_mode & 07777) != kOnlyUser && fchmod(descriptor, kOnlyUser) != 0) {
    return Unusable("cannot restrict the folder {} to its owner: {}", path, std::strerror(errno));
  }
  return {};
}

int OpenFolder(const std::string& path) {
  return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

// Returns the path of an open descriptor.
std::string PathOfDescriptor(int descriptor) { return fmt::format("/proc/self/fd/{}", descriptor); }

bool IsOwned(int file) {
  struct stat status = {};
  return fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
         (status.st_mode & kWritableByOthers) == 0;
}

bool WriteAll(int file, std::string_view content) {
  while (!content.empty()) {
    const ssize_t count = write(file, content.data(), content.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    content.remove_prefix(Index(count));
  }
  return true;
}

}  // namespace

Result<OwnedFolder> OwnedFolder::Open(const std::string& path) {
  PENSTOCK_TRY_STATUS(CreateFolders(path));
  const int descriptor = OpenFolder(path);
  if (descriptor < 0) return Unusable("cannot open the folder {}: {}", path, std::strerror(errno));
  OwnedFolder folder(path, descriptor, false);
  PENSTOCK_TRY_STATUS(CheckFolder(descriptor, path));
  return folder;
}

Result<OwnedFolder> OwnedFolder::MakeTemporary() {
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  std::string path = ((error ? fs::path("/tmp") : parent) / "penstock-XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr) {  // with mode 0700
    return Unusable("cannot create a temporary folder {}: {}", path, std::strerror(errno));
  }
  OwnedFolder folder(path, OpenFolder(path), true);
  PENSTOCK_TRY_STATUS(CheckFolder(folder.descriptor_, path));
  return folder;
}

OwnedFolder::~OwnedFolder() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!temporary_) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

OwnedFolder::OwnedFolder(OwnedFolder&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      temporary_(std::exchange(other.temporary_, false)) {}

std::string OwnedFolder::PathOf(const std::string& name) const {
  return fmt::format("{}/{}", PathOfDescriptor(descriptor_), name);
}

std::optional<std::string> OwnedFolder::Read(const std::string& name) const {
  // O_NONBLOCK: opening a FIFO would block. O_NOFOLLOW: a link may point outside of the folder.
  const int file =
      openat(descriptor_, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  std::optional<std::string> content;
  if (IsOwned(file)) {
    if (auto read = ReadFile(PathOfDescriptor(file))) content = *std::move(read);
  }
  close(file);
  return content;
}

Status OwnedFolder::Write(const std::string& name, std::string_view content) const {
  const std::string temporary = fmt::format("{}.{}", name, getpid());
  const int file = openat(descriptor_, temporary.c_str(),
                          O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
  bool written = file >= 0 && WriteAll(file, content);
  written = written && renameat(descriptor_, temporary.c_str(), descriptor_, name.c_str()) == 0;
  const int reason = errno;
  if (file >= 0) close(file);
  if (written) return {};
  unlinkat(descriptor_, temporary.c_str(), 0);
  return Unusable("cannot write {}/{}: {}", path_, name, std::strerror(reason));
}

}  // namespace penstock
