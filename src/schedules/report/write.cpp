#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/files.h"
#include "base/result.h"
#include "base/system/run_command.h"
#include "base/text/nearest.h"
#include "report/report.h"

namespace penstock {
namespace {

enum class PictureFormat {
  kPng,  // with two pixels to each of the SVG's on either axis
  kPdf,  // with text as text
};

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

// Returns the bytes of the file. Errors: kUnavailable if rsvg-convert is not on PATH or fails.
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

}  // namespace

Status WriteHtmlReport(const ReportInput& input, const std::string& path) {
  PENSTOCK_TRY(const std::string text, RenderHtml(input));
  return WriteFileAtomically(path, text);
}

Status WriteSvg(const ReportInput& input, const std::string& path) {
  PENSTOCK_TRY(const std::string text, RenderSvg(input));
  return WriteFileAtomically(path, text);
}

Status WritePlot(const Plot& plot, const std::string& path) {
  return WriteFileAtomically(path, RenderPlot(plot));
}

Status WriteChromeTrace(const ReportInput& input, const std::string& path) {
  PENSTOCK_TRY(const std::string text, RenderChromeTrace(input));
  return WriteFileAtomically(path, text);
}

Status WritePng(const ReportInput& input, const std::string& path) {
  PENSTOCK_TRY(const std::string svg, RenderSvg(input));
  PENSTOCK_TRY(const std::string png, ConvertSvg(svg, PictureFormat::kPng));
  return WriteFileAtomically(path, png);
}

Status WritePdf(const ReportInput& input, const std::string& path) {
  PENSTOCK_TRY(const std::string svg, RenderSvg(input));
  PENSTOCK_TRY(const std::string pdf, ConvertSvg(svg, PictureFormat::kPdf));
  return WriteFileAtomically(path, pdf);
}

Status WriteReport(const ReportInput& input, const std::string& path) {
  struct Format {
    std::string_view ending;
    Status (*write)(const ReportInput&, const std::string&);
  };
  static constexpr std::array kFormats = {
      Format{".html", WriteHtmlReport}, Format{".svg", WriteSvg}, Format{".png", WritePng},
      Format{".pdf", WritePdf}, Format{".trace.json", WriteChromeTrace}};
  for (const Format& format : kFormats) {
    if (std::string_view(path).ends_with(format.ending)) return format.write(input, path);
  }
  std::vector<std::string_view> endings;
  for (const Format& format : kFormats) endings.push_back(format.ending);
  const std::string ending = std::filesystem::path(path).extension().string();
  return InvalidArgument("{}: give a file ending in .html, .svg, .png, .pdf or .trace.json{}", path,
                         Suggestion(ending, endings));
}

}  // namespace penstock
