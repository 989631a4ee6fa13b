// What the core does with files and with exceptions, for a module that has neither.
#include <cstddef>
#include <cstdlib>

#include "cost_model/request/model_request.h"
#include "interop/primus/dump.h"
#include "interop/traces/recorded_run.h"
#include "scenario/machine/machine_file.h"
#include "scenario/price/load_file.h"

namespace penstock {

bool IsPrimusDump(const std::string& /*path*/) { return false; }
bool IsRecordedRun(const std::string& /*path*/) { return false; }

Result<LoadedFile> LoadFile(const Scenario& /*scenario*/, const std::string& path) {
  return InvalidArgument("{}: the playground reads no files by name; drop it on the page", path);
}

Status FillFromMachine(Scenario& scenario) {
  if (!scenario.machine) return {};
  return InvalidParameter("machine", ": the playground reads no files");
}

Result<ModelOnCluster> ModelRequest::Load() const {
  return InvalidParameter("model",
                          ": the playground has no models; 'penstock simulate' prices them");
}

}  // namespace penstock

// A throw ends the module with a trap, after which the page starts it anew.
extern "C" {

void* __cxa_allocate_exception(std::size_t bytes) { return std::malloc(bytes); }
[[noreturn]] void __cxa_throw(void* /*thrown*/, void* /*type*/, void (*)(void*)) { std::abort(); }

int madvise(void* /*at*/, std::size_t /*bytes*/, int /*advice*/) { return 0; }
}
