#include "base/shared_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/files.h"
#include "base/folders.h"

namespace penstock {
namespace {

// Closes the descriptor, and reports what has gone wrong before or then.
Status Close(int descriptor, bool good, const std::string& file) {
  const int error = errno;
  const bool closed = close(descriptor) == 0;
  if (good && closed) return {};
  return MakeError(ErrorCode::kUnavailable, "cannot write {}: {}", file,
                   std::strerror(good ? errno : error));
}

bool WriteAll(int descriptor, FilePart part) {
  while (!part.bytes.empty()) {
    const ssize_t written =
        pwrite(descriptor, part.bytes.data(), part.bytes.size(), static_cast<off_t>(part.offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    part.bytes.remove_prefix(static_cast<std::size_t>(written));
    part.offset += static_cast<std::size_t>(written);
  }
  return true;
}

}  // namespace

Result<std::string> CreateSharedFile(const std::string& path, std::size_t bytes) {
  PENSTOCK_TRY(const std::string to, FollowLink(path));
  std::string file = fmt::format("{}.{}.tmp", to, getpid());
  const int descriptor = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) return InvalidArgument("cannot write {}: {}", path, std::strerror(errno));
  const bool sized = ftruncate(descriptor, static_cast<off_t>(bytes)) == 0;
  PENSTOCK_TRY_STATUS(Close(descriptor, sized, path));
  return file;
}

Status WriteParts(const std::string& file, std::span<const FilePart> parts) {
  const int descriptor = open(file.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return InvalidArgument("cannot write {}: {}: all processes must see its folder", file,
                           std::strerror(errno));
  }
  bool good = true;
  for (const FilePart& part : parts) good = good && WriteAll(descriptor, part);
  good = good && fsync(descriptor) == 0;
  return Close(descriptor, good, file);
}

Status Publish(const std::string& file, const std::string& path) {
  PENSTOCK_TRY(const std::string to, FollowLink(path));
  if (std::rename(file.c_str(), to.c_str()) == 0 && SyncFolderOf(to)) return {};
  const std::string reason = std::strerror(errno);
  std::remove(file.c_str());
  return MakeError(ErrorCode::kUnavailable, "cannot write {}: {}", path, reason);
}

}  // namespace penstock
