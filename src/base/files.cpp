#include "base/files.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace penstock {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

std::string LastError() { return std::strerror(errno); }

}  // namespace

Result<std::string> ReadFile(const std::string& path) {
  const File file(std::fopen(path.c_str(), "rb"));
  if (!file) return NotFound("cannot read {}: {}", path, LastError());
  std::string content;
  char block[1 << 16];
  for (std::size_t got = 0; (got = std::fread(block, 1, sizeof block, file.get())) > 0;) {
    content.append(block, got);
  }
  if (std::ferror(file.get()) != 0) return NotFound("cannot read {}: {}", path, LastError());
  return content;
}

Status WriteFileAtomically(const std::string& path, std::string_view content) {
  // In the same folder, so that the rename stays within one file system.
  const std::string beside = fmt::format("{}.{}.tmp", path, getpid());
  File file(std::fopen(beside.c_str(), "wb"));
  if (!file) return InvalidArgument("cannot write {}: {}", path, LastError());
  const bool written = std::fwrite(content.data(), 1, content.size(), file.get()) == content.size();
  const bool closed = std::fclose(file.release()) == 0;
  if (written && closed && std::rename(beside.c_str(), path.c_str()) == 0) return {};
  const std::string reason = LastError();
  std::remove(beside.c_str());
  return MakeError(ErrorCode::kUnavailable, "cannot write {}: {}", path, reason);
}

}  // namespace penstock
