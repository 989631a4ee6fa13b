#include "base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/folders.h"
#include "base/index.h"
#include "base/units.h"

namespace penstock {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

std::string LastError() { return std::strerror(errno); }

// Returns the kind with its article.
const char* KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

bool WritePieces(std::FILE* file, std::span<const std::string_view> pieces) {
  for (const std::string_view piece : pieces) {
    if (std::fwrite(piece.data(), 1, piece.size(), file) != piece.size()) return false;
  }
  return std::fflush(file) == 0;
}

// A device or a pipe is written to: a rename would replace it.
Status WriteInPlace(const std::string& path, std::span<const std::string_view> pieces) {
  File file(std::fopen(path.c_str(), "wb"));
  if (!file) return InvalidArgument("cannot write {}: {}", path, LastError());
  const bool written = WritePieces(file.get(), pieces);
  if (written && std::fclose(file.release()) == 0) return {};
  return MakeError(ErrorCode::kUnavailable, "cannot write {}: {}", path, LastError());
}

bool IsDeviceOrPipe(const std::string& path) {
  struct stat status = {};
  return stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

Status Write(const std::string& path, std::span<const std::string_view> pieces, bool durable) {
  if (IsDeviceOrPipe(path)) return WriteInPlace(path, pieces);
  PENSTOCK_TRY(const std::string to, FollowLink(path));
  // Within the folder, so that the rename stays on one file system.
  const std::string temporary = fmt::format("{}.{}.tmp", to, getpid());
  File file(std::fopen(temporary.c_str(), "wb"));
  if (!file) return InvalidArgument("cannot write {}: {}", path, LastError());
  const bool written =
      WritePieces(file.get(), pieces) && (!durable || fsync(fileno(file.get())) == 0);
  const std::string write_error = written ? "" : LastError();
  const bool closed = std::fclose(file.release()) == 0;
  if (written && closed && std::rename(temporary.c_str(), to.c_str()) == 0) {
    if (!durable || SyncFolderOf(to)) return {};
  }
  const std::string reason = written ? LastError() : write_error;
  std::remove(temporary.c_str());
  return MakeError(ErrorCode::kUnavailable, "cannot write {}: {}", path, reason);
}

}  // namespace

bool SyncFolderOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool synced = fsync(descriptor) == 0 || errno == EINVAL;  // file systems without it
  close(descriptor);
  return synced;
}

Result<std::string> ReadFile(const std::string& path, const FileLimit& limit) {
  // Opening a FIFO waits for its writer, and a device may never end.
  const int descriptor = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return NotFound("cannot read {}: {}", path, LastError());
  const File file(fdopen(descriptor, "rb"));
  struct stat status = {};
  if (fstat(descriptor, &status) != 0) return NotFound("cannot read {}: {}", path, LastError());
  if (!S_ISREG(status.st_mode)) {
    return NotFound("cannot read {}: it is {}, not a regular file; save the content to a file",
                    path, KindOf(status.st_mode));
  }
  std::string content;
  // Growing a large string copies it.
  content.reserve(std::min(Index(status.st_size), limit.bytes));
  char block[1 << 16];
  for (std::size_t got = 0; (got = std::fread(block, 1, sizeof block, file.get())) > 0;) {
    if (got > limit.bytes - content.size()) {
      return InvalidArgument("{} is too large: a {} may have at most {}", path, limit.kind,
                             FormatBytes(static_cast<std::int64_t>(limit.bytes)));
    }
    content.append(block, got);
  }
  if (std::ferror(file.get()) != 0) return NotFound("cannot read {}: {}", path, LastError());
  return content;
}

Result<std::string> ReadTextFile(const std::string& path, const FileLimit& limit) {
  PENSTOCK_TRY(std::string content, ReadFile(path, limit));
  if (content.starts_with("\xFF\xFE") || content.starts_with("\xFE\xFF")) {
    return InvalidArgument("{} is UTF-16; save it as UTF-8", path);
  }
  if (content.find('\0') != std::string::npos) {
    return InvalidArgument("{} is not a text file: a {} is needed", path, limit.kind);
  }
  return content;
}

Status WriteFileAtomically(const std::string& path, std::string_view content) {
  return Write(path, {&content, 1}, false);
}

Status WriteFileDurably(const std::string& path, std::span<const std::string_view> pieces) {
  return Write(path, pieces, true);
}

}  // namespace penstock
