#include "cli/values/output_folder.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/text/quote.h"

namespace penstock {

Status CheckFolderOf(const std::string& option, const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent;
  if (access(folder.c_str(), W_OK | X_OK) == 0) return {};
  return InvalidArgument("{} {}: cannot write to the folder {}: {}", option, Quote(path), folder,
                         std::system_category().message(errno));
}

}  // namespace penstock
