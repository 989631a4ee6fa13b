#include "graph/kernel/library.h"

#include <ATen/Parallel.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "graph/kernel/compiler.h"

namespace penstock {
namespace {

struct Loaded {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<LoadedKernel>, std::less<>> kernels;  // by text
  std::map<std::string, KernelFunction> functions;                            // by SharedSource
  std::optional<Error> gave_up;  // set after the compiler timed out
};
Loaded& TheLoaded() {
  static auto* const loaded = new Loaded;  // never destroyed: programs use its functions
  return *loaded;
}

std::string NameOf(std::size_t number) { return fmt::format("penstock_kernel_{}", number); }

// Returns the source that kernels share if they differ only in their outer strides.
std::string SharedSource(const Kernel& kernel) { return SourceOf(kernel, "kernel"); }

// Sorted, so that equal sets have equal sources.
using Uncompiled = std::map<std::string, const Kernel*>;  // by SharedSource

Status CompileInto(Loaded& loaded, const Uncompiled& kernels) {
  // After one timeout, do not wait for the compiler again in every stage.
  if (loaded.gave_up) return tl::unexpected(*loaded.gave_up);
  std::string source(KernelPrelude());
  std::vector<std::string> names;
  for (const auto& [shared, kernel] : kernels) {
    names.push_back(NameOf(names.size()));
    source += SourceOf(*kernel, names.back());
  }
  auto compiled = CompileFunctions(source, names);
  if (!compiled && compiled.error().code == ErrorCode::kDeadlineExceeded) {
    loaded.gave_up = Error{ErrorCode::kUnavailable, compiled.error().message};
    return tl::unexpected(*loaded.gave_up);
  }
  if (!compiled) return tl::unexpected(std::move(compiled).error());
  auto address = compiled->addresses.begin();
  for (const auto& [shared, kernel] : kernels) {
    loaded.functions.emplace(shared, reinterpret_cast<KernelFunction>(*address++));
  }
  return {};
}

// Fewer elements are not worth waking threads (as in ATen).
constexpr std::int64_t kGrain = 32768;

}  // namespace

Status LoadKernels(std::span<const std::string> texts) {
  Loaded& loaded = TheLoaded();
  const std::scoped_lock lock(loaded.mutex);
  std::map<std::string, Kernel> missing;  // by text
  Uncompiled uncompiled;
  for (const std::string& text : texts) {
    if (loaded.kernels.contains(text) || missing.contains(text)) continue;
    PENSTOCK_TRY(Kernel kernel, KernelOf(text));
    const Kernel& added = missing.emplace(text, std::move(kernel)).first->second;
    std::string source = SharedSource(added);
    if (!loaded.functions.contains(source)) uncompiled.emplace(std::move(source), &added);
  }
  if (!uncompiled.empty()) PENSTOCK_TRY_STATUS(CompileInto(loaded, uncompiled));
  for (auto& [text, kernel] : missing) {
    const KernelFunction function = loaded.functions.at(SharedSource(kernel));
    std::vector<long> strides = OuterStrides(kernel);
    loaded.kernels.emplace(text, std::make_unique<LoadedKernel>(LoadedKernel{
                                     std::move(kernel), std::move(strides), function}));
  }
  return {};
}

const LoadedKernel* FindKernel(std::string_view text) {
  Loaded& loaded = TheLoaded();
  const std::scoped_lock lock(loaded.mutex);
  const auto found = loaded.kernels.find(text);
  return found == loaded.kernels.end() ? nullptr : found->second.get();
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
