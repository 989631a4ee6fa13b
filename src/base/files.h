// Files read and written whole.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace penstock {

// The most that a file of one kind may hold. Larger ones are mistakes, and would take all memory or
// minutes to parse.
struct FileLimit {
  std::size_t bytes = std::numeric_limits<std::size_t>::max();
  const char* kind = "file";  // for errors: "YAML file"
};

// Errors: kNotFound where the file cannot be read or is no regular file (pipes and devices may
// never end), kInvalidArgument where it is larger than `limit`.
Result<std::string> ReadFile(const std::string& path, const FileLimit& limit = {});

// The file has the old content or the new, never a part: writes beside it, then renames. Keeps
// nothing behind on failure. Errors: kInvalidArgument where the folder is missing or refuses the
// file, kUnavailable where the content cannot be written.
Status WriteFileAtomically(const std::string& path, std::string_view content);

// The same, from pieces that stand behind each other; and it outlasts a crash of the machine: file
// and folder are on the disk when the function returns.
Status WriteFileDurably(const std::string& path, std::span<const std::string_view> pieces);

// Waits until the path's folder is on the disk, and with it a rename of the file. False, with
// errno, where that fails.
bool SyncFolderOf(const std::string& path);

}  // namespace penstock
