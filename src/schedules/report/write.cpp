#include <unistd.h>

#include <array>
#include <filesystem>

#include "base/files.h"
#include "base/text/nearest.h"
#include "report/convert_svg.h"
#include "report/report.h"

namespace penstock {

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
