#include "graph/kernel/library.h"

#include <ATen/Parallel.h>

#include <map>
#include <memory>
#include <optional>

#include "base/mutex.h"
#include "graph/kernel/compiler.h"

namespace penstock {
namespace {

// The kernels of this process.
struct Library {
  Mutex mutex;
  std::map<std::string, std::unique_ptr<LoadedKernel>, std::less<>> kernels
      PENSTOCK_GUARDED_BY(mutex);                                              // by text
  std::map<std::string, KernelFunction> functions PENSTOCK_GUARDED_BY(mutex);  // by SharedSource
  std::optional<Error> timed_out PENSTOCK_GUARDED_BY(mutex);  // set once the compiler timed out
};
Library& TheLibrary() {
  static auto* const library = new Library;  // never destroyed: programs use its functions
  return *library;
}

std::string NameOf(std::size_t number) { return fmt::format("penstock_kernel_{}", number); }

// Returns the source that kernels share if they differ only in their outer strides.
std::string SharedSource(const Kernel& kernel) { return SourceOf(kernel, "kernel"); }

// By SharedSource. Sorted, so that equal sets have equal sources.
using Uncompiled = std::map<std::string, const Kernel*>;

Status CompileInto(Library& library, const Uncompiled& kernels) PENSTOCK_REQUIRES(library.mutex) {
  // Do not wait for the compiler again in every stage.
  if (library.timed_out) return tl::unexpected(*library.timed_out);
  std::string source(KernelPrelude());
  std::vector<std::string> names;
  for (const auto& [shared, kernel] : kernels) {
    names.push_back(NameOf(names.size()));
    source += SourceOf(*kernel, names.back());
  }
  auto compiled = CompileFunctions(source, names);
  if (!compiled && compiled.error().code == ErrorCode::kDeadlineExceeded) {
    library.timed_out = Error{ErrorCode::kUnavailable, compiled.error().line()};
    return tl::unexpected(*library.timed_out);
  }
  if (!compiled) return tl::unexpected(std::move(compiled).error());
  auto address = compiled->addresses.begin();
  for (const auto& [shared, kernel] : kernels) {
    library.functions.emplace(shared, reinterpret_cast<KernelFunction>(*address++));
  }
  return {};
}

// Elements per task of a parallel loop, as in ATen.
constexpr std::int64_t kGrain = 32768;

}  // namespace

Status LoadKernels(std::span<const std::string> texts) {
  Library& library = TheLibrary();
  const MutexLock lock(library.mutex);
  std::map<std::string, Kernel> missing;  // by text
  Uncompiled uncompiled;
  for (const std::string& text : texts) {
    if (library.kernels.contains(text) || missing.contains(text)) continue;
    PENSTOCK_TRY(Kernel kernel, KernelOf(text));
    const Kernel& added = missing.emplace(text, std::move(kernel)).first->second;
    std::string source = SharedSource(added);
    if (!library.functions.contains(source)) uncompiled.emplace(std::move(source), &added);
  }
  if (!uncompiled.empty()) PENSTOCK_TRY_STATUS(CompileInto(library, uncompiled));
  for (auto& [text, kernel] : missing) {
    const KernelFunction function = library.functions.at(SharedSource(kernel));
    std::vector<long> strides = OuterStrides(kernel);
    library.kernels.emplace(text, std::make_unique<LoadedKernel>(LoadedKernel{
                                      std::move(kernel), std::move(strides), function}));
  }
  return {};
}

const LoadedKernel* FindKernel(std::string_view text) {
  Library& library = TheLibrary();
  const MutexLock lock(library.mutex);
  const auto found = library.kernels.find(text);
  return found == library.kernels.end() ? nullptr : found->second.get();
}

void RunKernelFunction(const LoadedKernel& kernel, const void* const* inputs,
                       void* const* outputs) {
  std::int64_t points = 1;
  for (const std::int64_t size : kernel.kernel.loops) points *= size;
  const std::int64_t outermost = kernel.kernel.loops.front();
  const long* const strides = kernel.outer_strides.data();
  if (points <= kGrain || at::get_num_threads() == 1 || at::in_parallel_region() ||
      !CanSplit(kernel.kernel)) {
    kernel.function(inputs, outputs, strides, 0, outermost);
    return;
  }
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / (points / outermost));
  at::parallel_for(0, outermost, grain, [&](std::int64_t begin, std::int64_t end) {
    kernel.function(inputs, outputs, strides, begin, end);
  });
}

}  // namespace penstock
