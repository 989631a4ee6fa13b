#include "graph/kernel/code_cache.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>

#include "base/digest.h"

namespace penstock {
namespace {

constexpr std::size_t kDigestSize = 32;

// Returns null if the environment variable is not set or empty.
const char* FolderOf(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

}  // namespace

Result<OwnedFolder> OpenKernelCache() {
  std::filesystem::path folder;
  if (const char* cache = FolderOf("XDG_CACHE_HOME")) {
    folder = cache;
  } else if (const char* home = FolderOf("HOME")) {
    folder = std::filesystem::path(home) / ".cache";
  } else {
    return MakeError(ErrorCode::kUnavailable,
                     "there is no cache folder; set XDG_CACHE_HOME or HOME");
  }
  return OwnedFolder::Open((folder / "penstock").string());
}

std::string CacheFileOf(std::string code) {
  code += Digest(code);
  return code;
}

std::optional<std::string> ReadCachedCode(const OwnedFolder& cache, const std::string& name) {
  std::optional<std::string> file = cache.Read(name);
  if (!file || file->size() < kDigestSize) return std::nullopt;
  const std::string digest = file->substr(file->size() - kDigestSize);
  file->resize(file->size() - kDigestSize);
  if (Digest(*file) != digest) return std::nullopt;
  return file;
}

void WarnNotCached(const std::string& reason) {
  static std::atomic<bool> warned = false;
  if (warned.exchange(true)) return;
  fmt::print(stderr, "penstock: compiled kernels are not cached for later runs: {}\n", reason);
}

}  // namespace penstock
