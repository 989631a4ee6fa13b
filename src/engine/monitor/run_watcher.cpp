#include "monitor/run_watcher.h"

#include <sys/stat.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <string_view>

#include "base/files.h"
#include "base/system/machine_name.h"
#include "base/text/yaml_map.h"
#include "monitor/file_time.h"
#include "monitor/run_names.h"

namespace penstock {
namespace {

// Whether the holder of a run's lock, "process 12 on node7", may be alive. Only a process of this
// machine can be known not to be.
bool MayBeAlive(std::string_view holder) {
  constexpr std::string_view kProcess = "process ", kOn = " on ";
  const std::size_t on = holder.find(kOn);
  if (!holder.starts_with(kProcess) || on == std::string_view::npos) return true;
  const std::string machine = MachineName();
  if (machine == kUnknownMachine || holder.substr(on + kOn.size()) != machine) return true;
  int process = 0;
  const auto read = std::from_chars(holder.data() + kProcess.size(), holder.data() + on, process);
  if (read.ec != std::errc() || process <= 0) return true;
  return kill(process, 0) == 0 || errno != ESRCH;
}

RunSigns SignsOf(const std::string& folder, double changed) {
  RunSigns signs;
  signs.changed = changed;
  signs.now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const std::string lock = folder + "/.lock", weights = folder + "/model.safetensors";
  struct stat status {};
  if (stat(weights.c_str(), &status) == 0) signs.weights = ChangeTime(status);
  if (stat(lock.c_str(), &status) != 0) return signs;
  signs.has_process = MayBeAlive(ReadFile(lock).value_or(""));
  signs.locked = ChangeTime(status);
  return signs;
}

}  // namespace

RunWatcher::RunWatcher(const std::string& run)
    : folder_(FolderOfRun(run)), metrics_(folder_ + "/metrics.jsonl") {}

Result<RunStatus> RunWatcher::Read() {
  PENSTOCK_TRY_STATUS(ReadConfig());
  RunStatus status;
  if (!config_.empty()) {
    metrics_.Read();
    status = StatusOf(run_, metrics_.metrics(), SignsOf(folder_, metrics_.changed()));
  }
  status.folder = folder_;
  return status;
}

// A file that cannot be read may appear later.
Status RunWatcher::ReadConfig() {
  const std::string text = ReadFile(folder_ + "/config.yaml", kYamlFile).value_or("");
  if (text == config_) return {};
  if (!text.empty()) {
    PENSTOCK_TRY(run_, ReadDescription(folder_));
  }
  config_ = text;
  return {};
}

}  // namespace penstock
