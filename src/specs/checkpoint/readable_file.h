// ReadableFile: a regular file that is read at any offset, without allocating.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace penstock {

class ReadableFile {
 public:
  // Errors: kNotFound if the file cannot be opened or is not a regular file.
  static Result<ReadableFile> Open(const std::string& path);
  ~ReadableFile();
  ReadableFile(ReadableFile&& other) noexcept;
  ReadableFile& operator=(ReadableFile&& other) noexcept;

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }  // when it was opened

  // Fills `to`. Errors: kInvalidArgument if the file ends before or cannot be read.
  Status ReadAt(std::uint64_t offset, std::span<char> to) const;

 private:
  ReadableFile() = default;

  std::string path_;
  std::uint64_t size_ = 0;
  int descriptor_ = -1;
};

}  // namespace penstock
