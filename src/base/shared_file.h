// A file whose parts several processes write, each at its place. It appears under its name once all
// of it is written, and outlasts a crash of the machine.
//
// Errors: kInvalidArgument where the folder is missing or refuses the file, kUnavailable where the
// content cannot be written.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace penstock {

// Makes a file of `bytes` zeros beside `path` and returns its own path.
Result<std::string> CreateSharedFile(const std::string& path, std::size_t bytes);

struct FilePart {
  std::size_t offset = 0;
  std::string_view bytes;
};
// Writes parts of a file from CreateSharedFile; they are on the disk when it returns. Any process.
Status WriteParts(const std::string& file, std::span<const FilePart> parts);

// Gives the file its name. Requires: all of it is written.
Status Publish(const std::string& file, const std::string& path);

}  // namespace penstock
