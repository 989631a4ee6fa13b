#include "report/png.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/files.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

// A folder of its own, gone with everything in it at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code error;
    std::string pattern = (fs::temp_directory_path(error) / "penstock-XXXXXX").string();
    if (const char* made = mkdtemp(pattern.data()); made != nullptr) path_ = made;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// The first of Chromium's names found on PATH; empty if none is.
std::string FindChromium() {
  static constexpr std::array kNames = {"chromium", "chromium-browser", "google-chrome"};
  const char* const variable = std::getenv("PATH");
  const std::string path = variable == nullptr ? "" : variable;
  for (const char* name : kNames) {
    for (std::size_t begin = 0; begin <= path.size();) {
      const std::size_t end = std::min(path.find(':', begin), path.size());
      std::string file = path.substr(begin, end - begin) + "/" + name;
      if (access(file.c_str(), X_OK) == 0) return file;
      begin = end + 1;
    }
  }
  return {};
}

// Runs the program without a shell, its output thrown away. False if it did not end with status 0.
bool RunQuietly(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int failed = posix_spawn(&child, arguments[0], &files, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (failed != 0) return false;
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return false;
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// The number behind ` name="` in the svg element; 0 if there is none.
int SizeAttribute(const std::string& svg, const std::string& name) {
  const std::size_t at = svg.find(" " + name + "=\"");
  return at == std::string::npos ? 0 : std::atoi(svg.c_str() + at + name.size() + 3);
}

}  // namespace

Result<std::string> RasterizeSvg(const std::string& svg) {
  const std::string chromium = FindChromium();
  if (chromium.empty()) {
    return MakeError(ErrorCode::kUnavailable,
                     "a .png needs Chromium: apt-get install chromium, or write .svg instead");
  }
  const TemporaryFolder folder;
  if (folder.path().empty()) {
    return MakeError(ErrorCode::kUnavailable, "cannot make a folder for temporary files");
  }
  const fs::path page = folder.path() / "picture.svg";
  const fs::path picture = folder.path() / "picture.png";
  PENSTOCK_TRY_STATUS(WriteFileAtomically(page.string(), svg));
  const bool made = RunQuietly({chromium, "--headless", "--no-sandbox", "--hide-scrollbars",
                                "--force-device-scale-factor=2",
                                "--user-data-dir=" + (folder.path() / "profile").string(),
                                fmt::format("--window-size={},{}", SizeAttribute(svg, "width"),
                                            SizeAttribute(svg, "height")),
                                "--screenshot=" + picture.string(), "file://" + page.string()});
  if (!made || !fs::exists(picture)) {
    return MakeError(ErrorCode::kUnavailable, "{} could not draw the picture: write .svg instead",
                     chromium);
  }
  return ReadFile(picture.string());
}

}  // namespace penstock
