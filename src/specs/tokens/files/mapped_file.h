// MappedFile: a file that is read as memory. The kernel loads and evicts its pages.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace penstock {

// Immutable, so any thread may use it. A file must not shrink while it is mapped.
class MappedFile {
 public:
  // Errors: kNotFound if the file cannot be opened, is not a regular file or cannot be mapped.
  static Result<MappedFile> Open(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::size_t size() const { return size_; }

  std::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }

  // Returns the content as values of a type. Requires: size() is a multiple of sizeof(T).
  template <class T>
  std::span<const T> As() const {
    return {static_cast<const T*>(data_), size_ / sizeof(T)};
  }

 private:
  MappedFile() = default;

  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace penstock
