// AppendFile: a file that grows by whole records. One call writes a record, so a killed process
// leaves complete records. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace penstock {

// Errors of all functions: kUnavailable if the file cannot be written.
class AppendFile {
 public:
  explicit AppendFile(std::string path) : path_(std::move(path)) {}
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  const std::string& path() const { return path_; }
  bool is_open() const { return descriptor_ >= 0; }

  // Creates or replaces the file atomically. It starts with `content`.
  Status Open(std::string_view content);
  // Appends a record. If it does not fit on the disk, removes its written part. Requires is_open().
  Status Append(std::string_view record);

 private:
  std::string path_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;  // of its complete records, in bytes
};

}  // namespace penstock
