// Reads and writes whole files.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace penstock {

// The largest size of one kind of file. A larger file is a mistake: it would take all memory, or
// minutes to parse.
struct FileLimit {
  std::size_t bytes = std::numeric_limits<std::size_t>::max();
  const char* kind = "file";  // for errors: "YAML file"
};

// Returns the content of a regular file. Errors: kNotFound if the file cannot be read or is not a
// regular file (reading a pipe or device may never end), kInvalidArgument if it is larger than
// `limit`.
Result<std::string> ReadFile(const std::string& path, const FileLimit& limit = {});

// Returns the content of a text file. Errors: as ReadFile, and kInvalidArgument if it is UTF-16 or
// has NUL bytes, which no text has.
Result<std::string> ReadTextFile(const std::string& path, const FileLimit& limit = {});

// Writes a temporary file next to `path` and renames it, so that the file always has either the old
// content or the new. Writes to what a link leads to, and into a device or a pipe. Removes the
// temporary file on failure. Errors: kInvalidArgument if the folder is missing or not writable,
// kUnavailable if the content cannot be written.
Status WriteFileAtomically(const std::string& path, std::string_view content);

// Does the same with the concatenation of `pieces`. The file survives a crash of the machine: file
// and folder are on disk when the function returns.
Status WriteFileDurably(const std::string& path, std::span<const std::string_view> pieces);

// Waits until the path's folder is on the disk, and with it a rename of the file. False, with
// errno, where that fails.
bool SyncFolderOf(const std::string& path);

}  // namespace penstock
