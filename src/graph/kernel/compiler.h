// The machine's C++ compiler as a function from source to a shared library in a cache folder.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace penstock {

// The library of the source: from the folder, else compiled. Errors: kUnavailable.
struct CompiledFile {
  std::string path;
  bool compiled = false;  // now, by this call
};
Result<CompiledFile> CompileToLibrary(std::string_view source);

}  // namespace penstock
