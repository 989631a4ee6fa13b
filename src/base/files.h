// Files read and written whole.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace penstock {

// Errors: kNotFound where the file cannot be read.
Result<std::string> ReadFile(const std::string& path);

// The file has the old content or the new, never a part: writes beside it, then renames. Keeps
// nothing behind on failure. Errors: kInvalidArgument where the folder is missing or refuses the
// file, kUnavailable where the content cannot be written.
Status WriteFileAtomically(const std::string& path, std::string_view content);

// The same, from pieces that stand behind each other; and it outlasts a crash of the machine: file
// and folder are on the disk when the function returns.
Status WriteFileDurably(const std::string& path, std::span<const std::string_view> pieces);

}  // namespace penstock
