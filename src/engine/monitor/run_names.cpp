#include "monitor/run_names.h"

#include <filesystem>
#include <system_error>

#include "base/text/nearest.h"
#include "base/text/quote.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "runs";

bool IsName(const std::string& text) { return text.find('/') == std::string::npos; }

}  // namespace

std::vector<std::string> RunNames() {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(kFolder, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  return names;
}

std::string FolderOfRun(const std::string& run) {
  std::error_code error;
  return IsName(run) && !fs::is_directory(run, error) ? fmt::format("{}/{}", kFolder, run) : run;
}

std::string SimilarRun(const std::string& run) {
  const std::vector<std::string> names = RunNames();
  return Suggestion(run, {names.begin(), names.end()});
}

Result<std::string> PathOrRun(const std::string& text) {
  std::error_code error;
  if (!IsName(text) || text.empty() || fs::exists(fs::symlink_status(text, error))) return text;
  std::string folder = FolderOfRun(text);
  if (fs::is_directory(folder, error)) return folder;
  return NotFound("there is no file, folder or run {}{}", Quote(text), SimilarRun(text));
}

}  // namespace penstock
