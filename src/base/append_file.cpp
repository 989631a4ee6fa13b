#include "base/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/files.h"

namespace penstock {

AppendFile::~AppendFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

Status AppendFile::Open(std::string_view content) {
  PENSTOCK_TRY_STATUS(WriteFileAtomically(path_, content));
  descriptor_ = open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  size_ = static_cast<std::int64_t>(content.size());
  if (descriptor_ >= 0) return {};
  return MakeError(ErrorCode::kUnavailable, "cannot write {}: {}", path_, std::strerror(errno));
}

Status AppendFile::Append(std::string_view record) {
  const ssize_t written = write(descriptor_, record.data(), record.size());
  if (written == static_cast<ssize_t>(record.size())) {
    size_ += written;
    return {};
  }
  const std::string reason = written < 0 ? std::strerror(errno) : "the disk is full";
  const bool whole = written <= 0 || ftruncate(descriptor_, size_) == 0;
  return MakeError(ErrorCode::kUnavailable, "cannot write {}: {}{}", path_, reason,
                   whole ? "" : " (its last record is incomplete)");
}

}  // namespace penstock
