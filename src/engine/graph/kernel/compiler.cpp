#include "graph/kernel/compiler.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

#include "base/digest.h"
#include "base/files.h"
#include "base/first_line.h"
#include "base/system/run_command.h"
#include "graph/kernel/code_cache.h"
#include "graph/kernel/processor.h"

namespace penstock {
namespace {

// Without contraction, because a kernel must round where the ops that it replaces do.
constexpr std::array kFlags = {"-O3",
                               "-ffp-contract=off",
                               "-fno-math-errno",
                               "-fno-trapping-math",
                               "-fopenmp-simd",
                               "-fPIC",
                               "-shared",
                               "-w"};

std::string March() { return "-march=" + ChooseKernels(ThisProcessor()).march; }

// Identifies the processor, on which the code of -march=native depends.
std::string ProcessorKey() {
  const auto information = ReadFile("/proc/cpuinfo");
  if (!information) return "unknown";
  // The first processor's lines, up to the first empty line, without lines that change over time.
  std::string text;
  std::size_t at = 0;
  while (at < information->size() && (*information)[at] != '\n') {
    const std::size_t end = std::min(information->find('\n', at), information->size());
    const std::string_view line = std::string_view(*information).substr(at, end - at);
    if (line.substr(0, 7) != "cpu MHz" && line.substr(0, 8) != "bogomips") text += line;
    at = end + 1;
  }
  return text;
}

std::string CompilerName() {
  const char* const named = std::getenv("PENSTOCK_CXX");
  return named == nullptr || *named == '\0' ? "c++" : named;
}

// Returns, for example, "g++ (Debian ...) 12.2.0". The output goes through a file in `scratch`.
Result<std::string> CompilerVersion(const std::string& compiler, const OwnedFolder& scratch,
                                    std::chrono::milliseconds limit) {
  const std::string output = scratch.path() + "/version";
  const auto status = RunCommand({compiler, "--version"}, output, limit);
  if (!status && status.error().code == ErrorCode::kDeadlineExceeded)
    return tl::unexpected(status.error());
  const auto text = ReadFile(output);
  if (!status || *status != 0 || !text) {
    return MakeError(ErrorCode::kUnavailable, "cannot run the C++ compiler {}", compiler);
  }
  return FirstLine(*text);
}

// Returns the content of the library file.
Result<std::string> Compile(std::string_view source, const std::string& compiler,
                            const OwnedFolder& scratch, std::chrono::milliseconds limit) {
  const std::string source_path = scratch.path() + "/kernels.cpp";
  const std::string object = scratch.path() + "/kernels.o", log = scratch.path() + "/log";
  PENSTOCK_TRY_STATUS(WriteFileAtomically(source_path, source));
  std::vector<std::string> command = {compiler};
  command.insert(command.end(), kFlags.begin(), kFlags.end());
  command.push_back(March());
  command.insert(command.end(), {"-o", object, source_path});
  PENSTOCK_TRY(const int status, RunCommand(std::move(command), log, limit));
  auto content = ReadFile(object);
  if (status != 0 || !content) {
    return MakeError(ErrorCode::kUnavailable, "{} cannot compile a kernel: {}", compiler,
                     FirstLine(ReadFile(log).value_or("")));
  }
  return CacheFileOf(*std::move(content));
}

// Errors: kUnavailable if the library cannot be loaded or lacks a function.
Result<std::vector<void*>> FunctionsOf(const CompiledLibrary& library,
                                       std::span<const std::string> names) {
  void* const handle = dlopen(library.path().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return MakeError(ErrorCode::kUnavailable, "cannot load {}: {}", library.file(), dlerror());
  }
  std::vector<void*> functions;
  for (const std::string& name : names) {
    functions.push_back(dlsym(handle, name.c_str()));
    if (functions.back() != nullptr) continue;
    dlclose(handle);
    return MakeError(ErrorCode::kUnavailable, "{} lacks {}", library.file(), name);
  }
  return functions;
}

}  // namespace

Result<CompiledLibrary> CompileToLibrary(std::string_view source, const CompilerOptions& options) {
  const std::string compiler = CompilerName();
  PENSTOCK_TRY(OwnedFolder scratch, OwnedFolder::MakeTemporary());
  PENSTOCK_TRY(const std::string version, CompilerVersion(compiler, scratch, options.limit));
  std::string key = fmt::format("{}\n{}\n{}\n", source, version, ProcessorKey());
  for (const char* flag : kFlags) key += flag;
  key += March();
  const std::string name = Digest(key) + ".so";
  Result<OwnedFolder> cache = OpenKernelCache();
  if (cache && !options.recompile && ReadCachedCode(*cache, name)) {
    return CompiledLibrary{*std::move(cache), name, false};
  }
  PENSTOCK_TRY(const std::string content, Compile(source, compiler, scratch, options.limit));
  Status cached = cache ? cache->Write(name, content) : tl::unexpected(cache.error());
  if (cached) return CompiledLibrary{*std::move(cache), name, true};
  WarnNotCached(cached.error().line());
  PENSTOCK_TRY_STATUS(scratch.Write(name, content));
  return CompiledLibrary{std::move(scratch), name, true};
}

Result<CompiledFunctions> CompileFunctions(std::string_view source,
                                           std::span<const std::string> names,
                                           CompilerOptions options) {
  while (true) {
    PENSTOCK_TRY(const CompiledLibrary library, CompileToLibrary(source, options));
    auto functions = FunctionsOf(library, names);
    if (functions) return CompiledFunctions{*std::move(functions), library.compiled};
    if (library.compiled) return tl::unexpected(std::move(functions).error());
    options.recompile = true;
  }
}

}  // namespace penstock
