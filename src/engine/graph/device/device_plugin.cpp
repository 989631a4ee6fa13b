#include "graph/device/device_plugin.h"

#include <dlfcn.h>

#include <filesystem>
#include <string>

namespace penstock {
namespace {

namespace fs = std::filesystem;

// The folder of the file that contains this code: the program, or Python's module.
fs::path OwnFolder() {
  Dl_info found{};
  std::error_code error;
  fs::path file;
  if (dladdr(reinterpret_cast<const void*>(&OwnFolder), &found) != 0) file = found.dli_fname;
  if (!file.is_absolute()) file = "/proc/self/exe";
  return fs::canonical(file, error).parent_path();
}

Result<DevicePluginFunction> FindPlugin(const std::string& name) {
  const std::string symbol = "penstock_device_plugin_" + name;
  const auto find = [&](void* library) {
    return reinterpret_cast<DevicePluginFunction>(dlsym(library, symbol.c_str()));
  };
  if (const DevicePluginFunction loaded = find(RTLD_DEFAULT)) return loaded;
  const std::string file = "libpenstock_" + name + ".so";
  const fs::path own = OwnFolder();
  std::string reason;
  for (const fs::path& path : {own / file, own / ".." / file, own / "../penstock" / file,
                               own / "../lib/penstock" / file, fs::path(file)}) {
    std::error_code error;
    if (path.has_parent_path() && !fs::exists(path, error)) continue;
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      reason = dlerror();
      continue;
    }
    if (const DevicePluginFunction plugin = find(library)) return plugin;
    reason = fmt::format("{} has no {}", path.string(), symbol);
  }
  return MakeError(ErrorCode::kUnavailable,
                   "there is no plugin for {}: {}; build it with -DPENSTOCK_CUDA=ON, or "
                   "leave out device_graphs, device_parts and transport",
                   name, reason);
}

}  // namespace

Result<DevicePlugin*> OpenDevicePlugin(c10::Device device) {
  const std::string name = c10::DeviceTypeName(device.type(), /*lower_case=*/true);
  PENSTOCK_TRY(const DevicePluginFunction function, FindPlugin(name));
  DevicePlugin* const plugin = function();
  if (plugin != nullptr && plugin->version() == kDevicePluginVersion) return plugin;
  return MakeError(ErrorCode::kUnavailable,
                   "the plugin for {} is of another version of penstock; build it again", name);
}

}  // namespace penstock
