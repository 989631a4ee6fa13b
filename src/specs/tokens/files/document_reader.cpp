#include "tokens/files/document_reader.h"

#include <filesystem>

#include "base/text/strict_json.h"

namespace penstock {
namespace {

constexpr int kDeepestLine = 64;

}  // namespace

Result<bool> DocumentReader::Next(std::string& document) {
  while (true) {
    if (!open_) {
      if (next_ == files_.size()) return false;
      PENSTOCK_TRY_STATUS(OpenNext());
    }
    PENSTOCK_TRY(const bool found, NextInFile(document));
    if (stream_.bad()) return NotFound("cannot read {}", files_[next_ - 1]);
    if (!found) {
      stream_.close();
      open_ = false;
    } else if (!document.empty()) {
      return true;
    }
  }
}

Status DocumentReader::OpenNext() {
  const std::string& path = files_[next_++];
  std::error_code error;
  // Opening a named pipe waits for a writer.
  const bool is_file = std::filesystem::is_regular_file(path, error);
  if (is_file) stream_ = std::ifstream(path, std::ios::binary);
  if (!is_file || !stream_) {
    return NotFound("cannot read {}, or it is not a regular file", path);
  }
  open_ = true;
  is_jsonl_ = path.ends_with(".jsonl");
  line_ = 0;
  return {};
}

Result<bool> DocumentReader::NextInFile(std::string& document) {
  document.clear();
  if (is_jsonl_) return NextLine(document);
  if (!options_.separator.empty()) return NextSeparated(document);
  if (stream_.peek() == std::ifstream::traits_type::eof()) return false;
  document.assign(std::istreambuf_iterator<char>(stream_), {});
  bytes_ += document.size();
  return true;
}

Result<bool> DocumentReader::NextLine(std::string& document) {
  std::string line;
  if (!std::getline(stream_, line)) return false;
  ++line_;
  bytes_ += line.size() + 1;
  if (line.find_first_not_of(" \t\r") == line.npos) return true;
  const auto where = [&] { return fmt::format("{}:{}", files_[next_ - 1], line_); };
  const auto object = ParseStrictJson(line, kDeepestLine);
  if (!object) return InvalidArgument("{}: {}", where(), object.error().line());
  PENSTOCK_TRY(document, TextMember(*object, options_.jsonl_key.c_str(), where()));
  return true;
}

bool DocumentReader::NextSeparated(std::string& document) {
  std::string line;
  bool any = false;
  while (std::getline(stream_, line)) {
    any = true;
    bytes_ += line.size() + 1;
    std::string_view content = line;
    if (content.ends_with('\r')) content.remove_suffix(1);
    if (content == options_.separator) break;
    document += line;
    if (!stream_.eof()) document += '\n';
  }
  return any;
}

}  // namespace penstock
