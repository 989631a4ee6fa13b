// What was read from files, for functions that are called again and again with the same path.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "base/mutex.h"
#include "base/result.h"

namespace penstock {

// Keeps what `read` returned for a file until it has another time or size. Errors and what folders
// give are not kept. Threads: any number may call Get at a time.
template <class T>
class KeptFiles {
 public:
  template <class Read>
  Result<T> Get(const std::string& path, const Read& read) {
    namespace fs = std::filesystem;
    std::error_code error;
    const auto time = fs::last_write_time(path, error);
    const auto size = error ? std::uintmax_t{0} : fs::file_size(path, error);
    if (error || !fs::is_regular_file(path, error)) return read(path);
    {
      const MutexLock lock(mutex_);
      const auto found = kept_.find(path);
      if (found != kept_.end() && found->second.time == time && found->second.size == size) {
        return found->second.value;
      }
    }
    Result<T> value = read(path);
    if (!value) return value;
    const MutexLock lock(mutex_);
    kept_.insert_or_assign(path, Kept{time, size, *value});
    return value;
  }

 private:
  struct Kept {
    std::filesystem::file_time_type time;
    std::uintmax_t size;
    T value;
  };

  Mutex mutex_;
  std::map<std::string, Kept> kept_ PENSTOCK_GUARDED_BY(mutex_);
};

}  // namespace penstock
