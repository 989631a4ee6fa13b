// Compiles C++ source to a shared library in a cache folder, with the machine's compiler.
//
// Loads a library only if no other user can have written its folder or its file (owned_folder.h).
// If the cache folder does not satisfy this or cannot be written, compiles into a temporary folder
// and prints the reason to standard error.
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
  // A compiler that runs longer is killed. The kernels of a stage compile in seconds.
  std::chrono::milliseconds limit = std::chrono::minutes(2);
  bool recompile = false;  // ignores and replaces the file in the cache folder
};

// The file of a library. Its folder stays open as long as this object lives.
struct CompiledLibrary {
  OwnedFolder folder;
  std::string name;
  bool compiled = false;  // whether this call compiled it

  std::string path() const { return folder.PathOf(name); }         // valid in this process only
  std::string file() const { return folder.path() + "/" + name; }  // for messages
};

// Returns the library of the source from the cache folder, or compiles it.
// Errors: kUnavailable if there is no compiler or it fails; kDeadlineExceeded if it times out.
Result<CompiledLibrary> CompileToLibrary(std::string_view source,
                                         const CompilerOptions& options = {});

struct CompiledFunctions {
  std::vector<void*> addresses;  // by name; valid as long as the process lives
  bool compiled = false;         // whether this call compiled them
};
// Returns the functions with these names. Recompiles a library in the cache folder that cannot be
// loaded or lacks a function. Errors: as CompileToLibrary.
Result<CompiledFunctions> CompileFunctions(std::string_view source,
                                           std::span<const std::string> names,
                                           CompilerOptions options = {});

}  // namespace penstock
