#include "graph/kernel/cuda_library.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <map>
#include <memory>
#include <stdexcept>
#include <vector>

#include "base/digest.h"
#include "base/mutex.h"
#include "graph/kernel/code_cache.h"

namespace penstock {
namespace {

// The functions of NVRTC and of the CUDA driver that are called. They return 0 for success.
struct Functions {
  int (*version)(int* major, int* minor) = nullptr;
  int (*create)(void** program, const char* source, const char* name, int headers,
                const char* const* texts, const char* const* names) = nullptr;
  int (*compile)(void* program, int options, const char* const* texts) = nullptr;
  int (*log_size)(void* program, std::size_t* bytes) = nullptr;
  int (*log)(void* program, char* text) = nullptr;
  int (*code_size)(void* program, std::size_t* bytes) = nullptr;
  int (*code)(void* program, char* code) = nullptr;
  int (*destroy)(void** program) = nullptr;
  int (*attribute)(int* value, int attribute, int device) = nullptr;
  int (*load)(void** module, const void* code) = nullptr;
  int (*find)(void** function, void* module, const char* name) = nullptr;
  int (*launch)(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                unsigned shared, void* stream, void** parameters, void** extra) = nullptr;
};

Result<Functions> FindFunctions() {
  // PyTorch's library that links NVRTC and the driver; dlsym on it also searches these.
  void* library = nullptr;
  for (const char* const name : {"libcaffe2_nvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"}) {
    if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) return MakeError(ErrorCode::kUnavailable, "{}", dlerror());
  Functions found;
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) missing = name;
  };
  find(found.version, "nvrtcVersion");
  find(found.create, "nvrtcCreateProgram");
  find(found.compile, "nvrtcCompileProgram");
  find(found.log_size, "nvrtcGetProgramLogSize");
  find(found.log, "nvrtcGetProgramLog");
  find(found.code_size, "nvrtcGetCUBINSize");
  find(found.code, "nvrtcGetCUBIN");
  find(found.destroy, "nvrtcDestroyProgram");
  if (!missing.empty()) return MakeError(ErrorCode::kUnavailable, "NVRTC has no {}", missing);
  // Without a driver, sources can be compiled, but not loaded.
  find(found.attribute, "cuDeviceGetAttribute");
  find(found.load, "cuModuleLoadData");
  find(found.find, "cuModuleGetFunction");
  find(found.launch, "cuLaunchKernel");
  return found;
}

const Result<Functions>& TheFunctions() {
  static const auto* const functions = new Result<Functions>(FindFunctions());
  return *functions;
}

std::string LogOf(const Functions& functions, void* program) {
  std::size_t bytes = 0;
  if (functions.log_size(program, &bytes) != 0 || bytes == 0) return "it gives no reason";
  std::string log(bytes, '\0');
  if (functions.log(program, log.data()) != 0) return "it gives no reason";
  return log.substr(0, log.find('\n'));
}

const std::string kStandard = "-std=c++17";

Result<std::string> Compile(const Functions& functions, const std::string& source,
                            const std::string& architecture) {
  void* program = nullptr;
  if (functions.create(&program, source.c_str(), "penstock.cu", 0, nullptr, nullptr) != 0) {
    return MakeError(ErrorCode::kUnavailable, "NVRTC does not create a program");
  }
  const std::array options = {architecture.c_str(), kStandard.c_str()};
  Result<std::string> code;
  std::size_t bytes = 0;
  if (functions.compile(program, static_cast<int>(options.size()), options.data()) != 0) {
    code =
        MakeError(ErrorCode::kUnavailable, "NVRTC refuses a kernel: {}", LogOf(functions, program));
  } else if (functions.code_size(program, &bytes) != 0 || bytes == 0) {
    code = MakeError(ErrorCode::kUnavailable, "NVRTC has no code for {}", architecture);
  } else {
    code = std::string(bytes, '\0');
    if (functions.code(program, code->data()) != 0) {
      code = MakeError(ErrorCode::kUnavailable, "NVRTC does not return a kernel's code");
    }
  }
  functions.destroy(&program);
  return code;
}

Result<std::string> ArchitectureOf(const Functions& functions, c10::Device device) {
  constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
  int major = 0, minor = 0;
  const bool known = functions.attribute != nullptr &&
                     functions.attribute(&major, kMajor, device.index()) == 0 &&
                     functions.attribute(&minor, kMinor, device.index()) == 0;
  if (!known)
    return MakeError(ErrorCode::kUnavailable, "the CUDA driver does not know {}", device.str());
  return fmt::format("sm_{}{}", major, minor);
}

struct CudaLibrary {
  Mutex mutex;
  std::map<std::pair<int, std::string>, std::unique_ptr<CudaKernel>, std::less<>> kernels
      PENSTOCK_GUARDED_BY(mutex);  // by device and text
};
CudaLibrary& CudaKernels() {
  static auto* const library = new CudaLibrary;  // never destroyed: programs use its functions
  return *library;
}

std::string CudaNameOf(std::size_t number, bool vector) {
  return fmt::format("penstock_{}{}", number, vector ? "_vector" : "");
}

Status LoadModule(const Functions& functions, c10::Device device,
                  std::vector<CudaKernel>& kernels) {
  std::string source(CudaPrelude());
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const int vector = VectorOf(kernels[i].kernel);
    source += CudaSourceOf(kernels[i].kernel, CudaNameOf(i, false), 1);
    if (vector > 1) source += CudaSourceOf(kernels[i].kernel, CudaNameOf(i, true), vector);
  }
  PENSTOCK_TRY(const std::string architecture, ArchitectureOf(functions, device));
  PENSTOCK_TRY(const std::string code, CompileCuda(source, architecture));
  void* module = nullptr;
  if (const int error = functions.load(&module, code.data()); error != 0) {
    return MakeError(ErrorCode::kUnavailable, "CUDA does not load compiled kernels: error {}",
                     error);
  }
  const auto find = [&](std::size_t i, int vector) -> Result<CudaFunction> {
    CudaFunction found{.grid = GridOf(kernels[i].kernel, vector)};
    const std::string name = CudaNameOf(i, vector > 1);
    if (functions.find(&found.address, module, name.c_str()) == 0) return found;
    return MakeError(ErrorCode::kUnavailable, "CUDA does not find a compiled kernel");
  };
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    PENSTOCK_TRY(kernels[i].scalar, find(i, 1));
    const int vector = VectorOf(kernels[i].kernel);
    if (vector == 1) continue;
    PENSTOCK_TRY(kernels[i].vector, find(i, vector));
  }
  return {};
}

bool IsAligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % (kCudaVector * sizeof(float)) == 0;
}

}  // namespace

Result<std::string> CompileCuda(const std::string& source, const std::string& architecture) {
  if (!TheFunctions()) return tl::unexpected(TheFunctions().error());
  const Functions& functions = *TheFunctions();
  int major = 0, minor = 0;
  functions.version(&major, &minor);
  const std::string option = "-arch=" + architecture;
  const std::string name =
      Digest(fmt::format("{}\nNVRTC {}.{}\n{}{}", source, major, minor, option, kStandard)) +
      ".cubin";
  const Result<OwnedFolder> cache = OpenKernelCache();
  if (cache) {
    if (std::optional<std::string> code = ReadCachedCode(*cache, name)) return *std::move(code);
  }
  PENSTOCK_TRY(std::string code, Compile(functions, source, option));
  const Status cached =
      cache ? cache->Write(name, CacheFileOf(code)) : tl::unexpected(cache.error());
  if (!cached) WarnNotCached(cached.error().line());
  return code;
}

Status LoadCudaKernels(std::span<const std::string> texts, c10::Device device) {
  if (!TheFunctions()) return tl::unexpected(TheFunctions().error());
  CudaLibrary& library = CudaKernels();
  const MutexLock lock(library.mutex);
  std::vector<std::string> missing;
  std::vector<CudaKernel> kernels;
  for (const std::string& text : texts) {
    const bool known =
        library.kernels.contains(std::pair<int, std::string>(device.index(), text)) ||
        std::ranges::find(missing, text) != missing.end();
    if (known) continue;
    PENSTOCK_TRY(Kernel kernel, KernelOf(text));
    missing.push_back(text);
    kernels.emplace_back().kernel = std::move(kernel);
  }
  if (missing.empty()) return {};
  PENSTOCK_TRY_STATUS(LoadModule(*TheFunctions(), device, kernels));
  for (std::size_t i = 0; i < missing.size(); ++i) {
    library.kernels.emplace(std::pair<int, std::string>(device.index(), std::move(missing[i])),
                            std::make_unique<CudaKernel>(std::move(kernels[i])));
  }
  return {};
}

const CudaKernel* FindCudaKernel(std::string_view text, c10::Device device) {
  CudaLibrary& library = CudaKernels();
  const MutexLock lock(library.mutex);
  const auto found =
      library.kernels.find(std::pair<int, std::string>(device.index(), std::string(text)));
  return found == library.kernels.end() ? nullptr : found->second.get();
}

void RunCudaKernel(const CudaKernel& kernel, c10::Device device,
                   std::span<const void* const> inputs, std::span<void* const> outputs) {
  constexpr std::size_t kMost = 128;  // CUDA's parameters take 4 KiB at most
  PENSTOCK_CHECK(inputs.size() + outputs.size() <= kMost, "a kernel of {} tensors",
                 inputs.size() + outputs.size());
  std::array<const void*, kMost> addresses{};
  std::array<void*, kMost> parameters{};
  std::size_t count = 0;
  bool aligned = kernel.vector.address != nullptr;
  const auto add = [&](const void* address) {
    addresses[count] = address;
    parameters[count] = static_cast<void*>(&addresses[count]);
    aligned = aligned && IsAligned(address);
    ++count;
  };
  for (const void* const input : inputs) add(input);
  for (void* const output : outputs) add(output);
  const CudaFunction& function = aligned ? kernel.vector : kernel.scalar;
  const c10::impl::VirtualGuardImpl impl(device.type());
  void* const stream = impl.getStreamNativeHandle(impl.getStream(device));
  const int error =
      TheFunctions()->launch(function.address, function.grid.blocks, 1, 1, function.grid.threads, 1,
                             1, 0, stream, parameters.data(), nullptr);
  if (error != 0)
    throw std::runtime_error(fmt::format("CUDA cannot start a kernel: error {}", error));
}

}  // namespace penstock
