// The cache folder of compiled kernels: $XDG_CACHE_HOME/penstock, else ~/.cache/penstock.
//
// A file is compiled code followed by the digest of its bytes, so that an incomplete one is not
// used. Its name is a digest of all that the code depends on. Threads and processes: any.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "graph/kernel/owned_folder.h"

namespace penstock {

// Errors: kUnavailable, also if another user can write the folder (owned_folder.h).
Result<OwnedFolder> OpenKernelCache();

// Returns the content of a file of the cache.
std::string CacheFileOf(std::string code);
// Returns the code in the file; nothing if there is no such file or it is damaged.
std::optional<std::string> ReadCachedCode(const OwnedFolder& cache, const std::string& name);

// Prints once per process that kernels are compiled again by the next run.
void WarnNotCached(const std::string& reason);

}  // namespace penstock
