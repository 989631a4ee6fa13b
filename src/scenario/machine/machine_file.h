// Constants of machines in a file, which `penstock calibrate` fits to measured runs and a
// scenario's `machine` names:
//
//   constants:
//     - for: {device: a100, precision: fp16}
//       flops_efficiency: {value: 0.52, error: 0.01}
//     - for: {device: a100}
//       kernel_launch: {value: 4.1us, error: 0.2us}
//
// `penstock profile` writes what it measures of one model as `profile` (stage_profile.h). A file
// may have both. `for` has fields of the scenario. A value alone may stand for the map; `error` is
// its standard error.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "scenario/scenario.h"
#include "schedule/cost_files/stage_profile.h"

namespace penstock {

// One value of a constant.
struct MachineConstant {
  std::string field;
  std::vector<std::pair<std::string, std::string>> of;  // columns with their values
  std::string value;                                    // as SetText reads it
  std::string error = {};
};

struct MachineFile {
  std::string remark;  // lines at the top: where the constants come from
  std::vector<MachineConstant> constants;
  std::optional<StageProfile> profile = {};
};

// Returns the value of a field, or its default ("h100" for `device`). Empty if it has neither.
std::string EffectiveValue(std::string_view field, const Scenario& scenario);

std::string ToYaml(const MachineFile& machine);
// Errors: as LoadYaml; kInvalidArgument with file, line and key.
Result<MachineFile> ReadMachineFile(const std::string& path);

// Sets the profile as the costs of the scenario, which has none, and what else it determines and
// the scenario leaves open.
void SetProfile(const StageProfile& profile, Scenario& scenario);

// Returns the constants that FillFromMachine sets, with their errors; none without a machine.
// Errors: as FillFromMachine.
Result<std::vector<MachineConstant>> ConstantsInEffect(const Scenario& scenario);

// Sets the constants that the scenario's machine has and the scenario leaves open. If several
// values apply, the last counts, so that a scenario without a release has the newest release's.
// Errors: as ReadMachineFile, and kInvalidArgument about `machine` if it has a constant, but none
// for this device and precision.
Status FillFromMachine(Scenario& scenario);

}  // namespace penstock
