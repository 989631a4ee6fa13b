#include "tokens/files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace penstock {

Result<MappedFile> MappedFile::Open(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return NotFound("cannot read {}: {}", path, std::strerror(errno));
  struct stat status = {};
  MappedFile file;
  Status opened;
  if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    opened = NotFound("{} is not a regular file", path);
  } else if (status.st_size > 0) {  // an empty range cannot be mapped
    const auto size = static_cast<std::size_t>(status.st_size);
    void* const data = mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
    if (data == MAP_FAILED) {
      opened = NotFound("cannot map {}: {}", path, std::strerror(errno));
    } else {
      file.data_ = data;
      file.size_ = size;
    }
  }
  close(descriptor);
  PENSTOCK_TRY_STATUS(opened);
  return file;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace penstock
