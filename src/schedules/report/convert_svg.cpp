#include "report/convert_svg.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/files.h"
#include "base/system/run_command.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

// A new folder, which is removed with its files at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code error;
    std::string pattern = (fs::temp_directory_path(error) / "penstock-XXXXXX").string();
    if (const char* created = mkdtemp(pattern.data()); created != nullptr) path_ = created;
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

constexpr std::chrono::minutes kLimit{1};  // large pictures take seconds

}  // namespace

Result<std::string> ConvertSvg(const std::string& svg, PictureFormat format) {
  const bool is_png = format == PictureFormat::kPng;
  const TemporaryFolder folder;
  if (folder.path().empty()) {
    return MakeError(ErrorCode::kUnavailable, "cannot create a folder for temporary files");
  }
  const std::string page = (folder.path() / "picture.svg").string();
  const std::string picture = (folder.path() / "picture").string();
  const std::string log = (folder.path() / "log").string();
  PENSTOCK_TRY_STATUS(WriteFileAtomically(page, svg));
  const auto status =
      RunCommand({"rsvg-convert", is_png ? "--zoom=2" : "--zoom=1",
                  is_png ? "--format=png" : "--format=pdf", "--output=" + picture, page},
                 log, kLimit);
  if (!status && status.error().code == ErrorCode::kNotFound) {
    return MakeError(ErrorCode::kUnavailable,
                     "a {} needs rsvg-convert: apt-get install librsvg2-bin, or write .svg",
                     is_png ? ".png" : ".pdf");
  }
  if (!status) return tl::unexpected(status.error());
  if (*status != 0 || !fs::exists(picture)) {
    const std::string said = ReadFile(log).value_or("");
    return MakeError(ErrorCode::kUnavailable,
                     "rsvg-convert cannot draw the picture; write .svg: {}",
                     said.substr(0, said.find('\n')));
  }
  return ReadFile(picture);
}

}  // namespace penstock
