// The machine's C++ compiler as a function from source to a shared library in a cache folder.
//
// A library is loaded only from a folder, and from a file, that nobody but this user can have
// written (owned_folder.h). Where the cache folder is not so, or cannot be written, the library is
// compiled into a temporary folder, and one line on standard error says why.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "graph/kernel/owned_folder.h"

namespace penstock {

struct CompilerOptions {
  // A run of the compiler that takes longer is killed: a stage takes seconds.
  std::chrono::milliseconds limit = std::chrono::minutes(2);
  bool again = false;  // replaces what is in the cache folder
};

// A library's file, in a folder that stays open with this object.
struct CompiledLibrary {
  OwnedFolder folder;
  std::string name;
  bool compiled = false;  // by this call

  std::string path() const { return folder.PathOf(name); }         // as this process opens it
  std::string file() const { return folder.path() + "/" + name; }  // as a user finds it
};

// The library of the source: from the cache folder, else compiled. Errors: kUnavailable where there
// is no compiler or it fails, kDeadlineExceeded where it does not end in time.
Result<CompiledLibrary> CompileToLibrary(std::string_view source,
                                         const CompilerOptions& options = {});

struct CompiledFunctions {
  std::vector<void*> addresses;  // by name; valid as long as the process lives
  bool compiled = false;         // by this call
};
// The source's functions of these names. A library in the cache folder that cannot be loaded or
// lacks one is compiled again. Errors: as CompileToLibrary.
Result<CompiledFunctions> CompileFunctions(std::string_view source,
                                           std::span<const std::string> names,
                                           CompilerOptions options = {});

}  // namespace penstock
