#include "checkpoint/readable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace penstock {

Result<ReadableFile> ReadableFile::Open(const std::string& path) {
  ReadableFile file;
  file.path_ = path;
  // Opening a FIFO would wait for its writer.
  file.descriptor_ = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  struct stat status = {};
  if (file.descriptor_ < 0 || fstat(file.descriptor_, &status) != 0) {
    return NotFound("cannot read {}: {}", path, std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) return NotFound("cannot read {}: it is not a regular file", path);
  file.size_ = static_cast<std::uint64_t>(status.st_size);
  return file;
}

ReadableFile::~ReadableFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

ReadableFile::ReadableFile(ReadableFile&& other) noexcept
    : path_(std::move(other.path_)),
      size_(other.size_),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

ReadableFile& ReadableFile::operator=(ReadableFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(size_, other.size_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

Status ReadableFile::ReadAt(std::uint64_t offset, std::span<char> to) const {
  while (!to.empty()) {
    const ssize_t got = pread(descriptor_, to.data(), to.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return InvalidArgument("cannot read {}: {}", path_, std::strerror(errno));
    if (got == 0) return InvalidArgument("{} is truncated after {} bytes", path_, offset);
    offset += static_cast<std::uint64_t>(got);
    to = to.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

}  // namespace penstock
