// The machine's C++ compiler as a function from source to a shared library in a cache folder.
//
// A library is loaded only if nobody but this user can have written its folder and its file
// (owned_folder.h). If the cache folder does not qualify or cannot be written, the library is
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
  // A run of the compiler that takes longer is killed. A stage takes seconds.
  std::chrono::milliseconds limit = std::chrono::minutes(2);
  bool again = false;  // replaces the file in the cache folder
};

// The file of a library, in a folder that stays open as long as this object.
struct CompiledLibrary {
  OwnedFolder folder;
  std::string name;
  bool compiled = false;  // by this call

  std::string path() const { return folder.PathOf(name); }         // for opening it in this process
  std::string file() const { return folder.path() + "/" + name; }  // for messages
};

// Returns the library of the source from the cache folder, or compiles it. Errors: kUnavailable if
// there is no compiler or it fails; kDeadlineExceeded if it times out.
Result<CompiledLibrary> CompileToLibrary(std::string_view source,
                                         const CompilerOptions& options = {});

struct CompiledFunctions {
  std::vector<void*> addresses;  // by name; valid as long as the process lives
  bool compiled = false;         // by this call
};
// Returns the functions with these names. A library in the cache folder that cannot be loaded or
// lacks a function is compiled again. Errors: as CompileToLibrary.
Result<CompiledFunctions> CompileFunctions(std::string_view source,
                                           std::span<const std::string> names,
                                           CompilerOptions options = {});

}  // namespace penstock
