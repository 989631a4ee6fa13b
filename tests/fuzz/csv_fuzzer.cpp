// libFuzzer target that reads any bytes as the CSV of a schedule. The reader and the validator must
// not crash or hang. A schedule that the reader accepts must round-trip. A schedule that the
// validator accepts must run, and stay valid and run after every pass.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/passes/pass_table.h"
#include "schedule/text/text.h"
#include "schedule/validate/validate.h"
#include "simulate/pass_context.h"
#include "simulate/simulate.h"
#include "tests/fuzz/require.h"

namespace penstock {
namespace {

void RunPasses(const Schedule& schedule, const Costs& costs) {
  for (const SchedulePass& pass : SchedulePasses()) {
    const std::vector<std::string> passes = {std::string(pass.name)};
    // RunSchedulePasses checks that the result is valid. Only two passes may refuse: a schedule may
    // have no position for a STEP, and several chains cannot share a vocabulary.
    const auto changed = RunSchedulePasses(schedule, passes, SimulatedContext(costs));
    if (!changed) {
      Require(pass.name == "optimizer" || pass.name == "vocabulary",
              "a pass refuses a valid schedule", changed.error().line());
      continue;
    }
    const auto priced = Simulate(*changed, costs);
    Require(priced.has_value(), "a pass returns a schedule that does not run",
            std::string(pass.name) + "\n" + WriteCsv(*changed));
  }
}

void Check(std::string_view text) {
  const auto schedule = ParseCsv(text);
  if (!schedule) {
    const std::string& message = schedule.error().line();
    Require(!message.empty() && message.find('\n') == std::string::npos, "not one line", message);
    return;
  }
  const std::string csv = WriteCsv(*schedule);
  const auto again = ParseCsv(csv);
  Require(again.has_value() && again->lanes == schedule->lanes &&
              again->microbatches == schedule->microbatches &&
              again->indices() == schedule->indices() && WriteCsv(*again) == csv,
          "a written schedule reads back differently", csv);
  const std::vector<Fault> faults = Validate(*schedule);
  for (const Fault& fault : faults) {
    Require(!fault.reason.empty(), "a fault without a reason", csv);
    Require(!Describe(*schedule, fault).empty(), "a fault without a text", csv);
  }
  if (!faults.empty()) return;
  const Costs costs = Costs::Uniform(schedule->placement, schedule->slices, 1, 1, 1, 0.5);
  const auto result = Simulate(*schedule, costs);
  Require(result.has_value(), "valid, but it does not run", csv);
  RunPasses(*schedule, costs);
}

}  // namespace
}  // namespace penstock

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  penstock::Check({reinterpret_cast<const char*>(data), size});
  return 0;
}
