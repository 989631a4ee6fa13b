// KernelCache: a cache folder for compiled kernels that only one test uses.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "base/index.h"

namespace penstock::testing {

// While it exists, XDG_CACHE_HOME is a new folder.
class KernelCache {
 public:
  KernelCache()
      : path_(std::filesystem::temp_directory_path() / fmt::format("penstock-cache-{}", getpid())) {
    std::filesystem::create_directories(path_);
    Set("XDG_CACHE_HOME", path_.c_str());
  }
  ~KernelCache() {
    for (auto& [name, value] : before_) {
      value.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1);
    }
    std::filesystem::remove_all(path_);
  }
  KernelCache(const KernelCache&) = delete;
  KernelCache& operator=(const KernelCache&) = delete;

  // Sets an environment variable until this object is destroyed.
  void Set(const char* name, const char* value) {
    const char* const now = std::getenv(name);
    before_.emplace(name, now == nullptr ? "" : now);
    setenv(name, value, 1);
  }
  std::filesystem::path scratch() const { return path_; }
  std::filesystem::path folder() const { return path_ / "penstock"; }
  std::size_t Files() const {
    const std::filesystem::directory_iterator files(folder());
    return Index(std::distance(begin(files), end(files)));
  }

 private:
  std::filesystem::path path_;
  std::map<std::string, std::string> before_;
};

}  // namespace penstock::testing
