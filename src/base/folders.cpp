#include "base/folders.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace penstock {
namespace {

namespace fs = std::filesystem;

bool IsLink(const fs::path& path) {
  std::error_code error;
  return fs::is_symlink(fs::symlink_status(path, error));
}

std::string MissingTarget(const fs::path& link) {
  std::error_code error;
  return fmt::format(
      "{} is a link to {}, which does not exist: mount or create it, or remove the link",
      link.string(), fs::read_symlink(link, error).string());
}

Status Create(const fs::path& path, std::vector<std::string>& created) {
  std::error_code error;
  if (path.empty() || fs::is_directory(path, error)) return {};
  const fs::path parent = path.parent_path();
  if (parent != path) PENSTOCK_TRY_STATUS(Create(parent, created));
  if (mkdir(path.c_str(), 0777) == 0) {
    created.push_back(path.string());
    return {};
  }
  const int reason = errno;
  if (fs::is_directory(path, error)) return {};  // by another process, or "runs/" after "runs"
  if (!fs::exists(path, error) && IsLink(path)) return InvalidArgument("{}", MissingTarget(path));
  if (reason == EEXIST) return InvalidArgument("{} is not a folder", path.string());
  return InvalidArgument("{}: {}", path.string(), std::strerror(reason));
}

}  // namespace

Status CreateFolders(const std::string& path, std::vector<std::string>* created) {
  std::vector<std::string> unused;
  const Status status = Create(path, created != nullptr ? *created : unused);
  if (status) return {};
  return InvalidArgument("cannot create the folder {}: {}", path, status.error().line());
}

void RemoveFolders(const std::vector<std::string>& created) {
  std::for_each(created.rbegin(), created.rend(),
                [](const std::string& folder) { rmdir(folder.c_str()); });
}

Result<std::string> FollowLink(const std::string& path) {
  if (!IsLink(path)) return path;
  std::error_code error;
  const fs::path target = fs::canonical(path, error);
  if (error) return InvalidArgument("cannot write {}: {}", path, MissingTarget(path));
  return target.string();
}

}  // namespace penstock
