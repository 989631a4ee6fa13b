// libFuzzer target that reads bytes as a recipe for a schedule, so that no input is lost to syntax
// errors. The recipe is a catalog algorithm at some size, a chain of passes, and then some actions
// dropped, copied, swapped, moved or changed. The validator must agree with the slow, obvious
// checker and report positions that exist. A schedule that it accepts must run.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/index.h"
#include "schedule/passes/pass_table.h"
#include "schedule/text/text.h"
#include "schedule/validate/validate.h"
#include "simulate/pass_context.h"
#include "simulate/simulate.h"
#include "tests/fuzz/require.h"
#include "tests/schedules/schedule/draw.h"
#include "tests/schedules/schedule/mutate.h"
#include "tests/schedules/schedule/slow_checker.h"

namespace penstock {
namespace {

// Reads the input as random numbers of two bytes each, followed by zeros.
class ByteSource {
 public:
  explicit ByteSource(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  unsigned operator()() { return TakeByte() + 256U * TakeByte(); }

 private:
  unsigned TakeByte() {
    if (bytes_.empty()) return 0;
    const unsigned byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte;
  }
  std::span<const std::uint8_t> bytes_;
};

void CheckFaults(const Schedule& schedule, const std::vector<Fault>& faults) {
  for (const Fault& fault : faults) {
    Require(!fault.reason.empty(), "a fault without a reason", WriteCsv(schedule));
    Require(!Describe(schedule, fault).empty(), "a fault without a text", WriteCsv(schedule));
    if (fault.position < 0) continue;
    const Lane& lane = schedule.lanes.at(Index(fault.rank));
    Require(ToText(lane.at(Index(fault.position))) == fault.action, "a fault of another action",
            fault.reason + '\n' + WriteCsv(schedule));
  }
}

// The searches are excluded: they would take nearly all the time, and their orders resemble other
// algorithms'.
bool Searches(std::string_view name) {
  for (const std::string_view other : {"zb-auto", "v-auto", "v-1f1b", "zbv", "v-half", "v-min"}) {
    if (name == other) return true;
  }
  return false;
}

void Check(ByteSource bytes) {
  const std::span<const Algorithm> catalog = Catalog();
  const Algorithm& algorithm = catalog[bytes() % catalog.size()];
  if (Searches(algorithm.name)) return;
  ScheduleParams params = testing::DrawParams(algorithm, bytes);
  params.microbatches = (params.microbatches + 1) / 2;  // many small schedules, not few large ones
  auto made = Generate(algorithm.name, params);
  if (!made) return;
  Schedule schedule = std::move(*made);
  const Costs costs = testing::DrawPassCosts(schedule, bytes);
  for (int passes = testing::Draw(bytes, 0, 3); passes > 0; --passes) {
    const std::vector<std::string> pass = {testing::DrawPass(bytes)};
    auto changed = RunSchedulePasses(schedule, pass, SimulatedContext(costs));
    if (changed) schedule = std::move(*changed);
  }
  constexpr int kMostChanges = 8;
  for (int i = 0; i < kMostChanges && !bytes.empty(); ++i) testing::Mutate(schedule, bytes);

  const std::vector<Fault> faults = Validate(schedule);
  CheckFaults(schedule, faults);
  Require(faults.empty() == testing::SlowlyValid(schedule),
          faults.empty() ? "passed, but not valid" : "valid, but not passed", WriteCsv(schedule));
  if (faults.empty()) {
    Require(Simulate(schedule, costs).has_value(), "valid, but it does not run",
            WriteCsv(schedule));
  }
}

}  // namespace
}  // namespace penstock

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  penstock::Check(penstock::ByteSource({data, size}));
  return 0;
}
