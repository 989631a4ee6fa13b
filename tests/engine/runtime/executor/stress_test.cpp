// Random valid schedules under random delays: no run hangs, no message is lost, repeated or copied,
// and a stage that throws fails the run and is named. PENSTOCK_STRESS is the number of cases
// (tools/stress). A failure names its case; PENSTOCK_STRESS_FIRST is the first case to run.
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "runtime/emulation/emulation.h"
#include "runtime/executor/run.h"
#include "runtime/program.h"
#include "schedule/passes/passes.h"
#include "schedule/text/text.h"
#include "simulate/pass_context.h"
#include "simulate/summary.h"
#include "tests/cases.h"
#include "tests/engine/runtime/probe_stage.h"
#include "tests/engine/runtime/random_schedule.h"
#include "tests/schedules/schedule/draw.h"

namespace penstock {
namespace {

int FromEnvironment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

// Perturbs the order of arrival: most calls return at once, some yield, some sleep.
void Delay() {
  thread_local Random random(
      static_cast<unsigned>(std::hash<std::thread::id>()(std::this_thread::get_id())));
  const int kind = Uniform(random, 0, 15);
  if (kind == 0) std::this_thread::sleep_for(std::chrono::microseconds(Uniform(random, 0, 60)));
  if (kind < 4) std::this_thread::yield();
}

// Expects every call once, in order, with the message of its producer.
void RunWhole(const Schedule& schedule, int steps) {
  Probes probes(schedule, [](const Part&, std::int64_t) { Delay(); });
  const Status status = RunRanks(schedule, probes.stages, {.steps = steps});
  ASSERT_TRUE(status) << status.error().line();
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    ASSERT_EQ(probes.logs[rank].calls, ExpectedCalls(schedule, rank, steps));
  }
}

void RunWithAFailure(const Schedule& schedule, Random& random) {
  const int rank = Uniform(random, 0, schedule.ranks() - 1);
  const Program program = MakeProgram(schedule, rank).value();
  const Part guilty = program[random() % program.size()].part;
  Probes probes(schedule, [&](const Part& part, std::int64_t) {
    Delay();
    if (part == guilty) throw std::runtime_error("out of paper");
  });
  const Status status = RunRanks(schedule, probes.stages);
  ASSERT_FALSE(status);
  const std::string& message = status.error().line();
  ASSERT_EQ(message.rfind(fmt::format("rank {}: ", rank), 0), 0U) << message;
  ASSERT_NE(message.find(ToText(guilty)), std::string::npos) << message;
  ASSERT_NE(message.find("out of paper"), std::string::npos) << message;
}

// Runs a catalog schedule with random passes on devices whose actions take almost no time.
void RunEmulated(Random& random) {
  const auto catalog = Catalog();
  const Algorithm& algorithm = catalog[random() % catalog.size()];
  const auto made = Generate(algorithm.name, testing::DrawParams(algorithm, random));
  if (!made) return;
  const Costs costs = testing::DrawPassCosts(*made, random);
  const auto passes = testing::DrawPasses(Uniform(random, 0, 3), random);
  const auto schedule = RunSchedulePasses(*made, passes, SimulatedContext(costs));
  if (!schedule || !Simulate(*schedule, costs)) return;
  Emulation machine(*schedule, costs, {.unit = std::chrono::microseconds(Uniform(random, 0, 20))});
  RunOptions run = {.steps = Uniform(random, 1, 3), .transport = &machine.transport()};
  const Status status = RunRanks(*schedule, machine.stages(), run);
  ASSERT_TRUE(status) << status.error().line() << "\n" << WriteCsv(*schedule);
  ASSERT_EQ(machine.messages(), run.steps * static_cast<int>(CountMessages(*schedule)));
}

void RunCase(int number) {
  Random random(static_cast<unsigned>(number));
  const int kind = Uniform(random, 0, 9);
  if (kind < 3) return RunEmulated(random);
  Schedule schedule = RandomSchedule(random);
  if (Uniform(random, 0, 2) == 0) schedule = AddCommunication(schedule);
  if (kind == 3) {
    RunWithAFailure(schedule, random);
  } else {
    RunWhole(schedule, Uniform(random, 1, 3));
  }
  if (::testing::Test::HasFailure()) ADD_FAILURE() << WriteCsv(schedule);
  ASSERT_EQ(live_payloads.load(), 0);
}

TEST(StressTest, RandomSchedulesUnderRandomDelays) {
  const int first = FromEnvironment("PENSTOCK_STRESS_FIRST", 0);
  const int count = FromEnvironment("PENSTOCK_STRESS", testing::Cases(1000));
  for (int number = first; number < first + count; ++number) {
    RunCase(number);
    if (HasFailure()) FAIL() << "case " << number;
  }
}

}  // namespace
}  // namespace penstock
