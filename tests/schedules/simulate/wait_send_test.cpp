// WAIT_SENDs in random schedules: within their budget, without a deadlock, and what they cost.
// PENSTOCK_DRAWS is the number of schedules.
#include <gtest/gtest.h>

#include <cstdlib>

#include "schedule/passes/passes.h"
#include "schedule/validate/receive_slots.h"
#include "schedule/validate/validate.h"
#include "simulate/memory/memory_by_kind.h"
#include "simulate/simulate.h"
#include "tests/cases.h"
#include "tests/results.h"
#include "tests/schedules/schedule/slow_checker.h"
#include "tests/schedules/simulate/random_schedule.h"

namespace penstock {
namespace {

int Draws(int count) {
  const char* const text = std::getenv("PENSTOCK_DRAWS");
  return text == nullptr ? testing::Cases(count) : std::atoi(text);
}

int MostInFlight(const Lane& lane) {
  int in_flight = 0, most = 0;
  for (const Action& action : lane) {
    if (IsSend(action.first.op)) most = std::max(most, ++in_flight);
    if (IsWaitSend(action.first.op)) --in_flight;
  }
  return most;
}

// Whether the lanes can run so that each rank has less than `budget` messages without a posted RECV
// before it sends another. Runs one action at a time.
bool SlowlyFeasible(const Schedule& schedule, int budget) {
  std::vector<std::size_t> at(schedule.lanes.size());
  std::vector<Part> done;
  const auto ran = [&](Op op, int stage, int microbatch) {
    return std::ranges::count(done, MakeAction(op, stage, microbatch).first) > 0;
  };
  const auto ready = [&](const Part& part) {
    bool is = true;
    ForEachDependency(ChainShape::Of(schedule), part, [&](const Value& value) {
      const bool own =
          schedule.placement.rank_of(value.stage) == schedule.placement.rank_of(part.stage);
      const bool activation = value.kind == ValueKind::kActivation;
      is = is && (own || ran(activation ? Op::kSendForward : Op::kSendBackward, value.stage,
                             value.microbatch));
    });
    if (!IsSend(part.op)) return is;
    const auto unposted = std::ranges::count_if(done, [&](const Part& sent) {
      const bool same = IsSend(sent.op) && schedule.placement.rank_of(sent.stage) ==
                                               schedule.placement.rank_of(part.stage);
      return same && std::ranges::count(done, ReceiveOf(sent)) == 0;
    });
    return unposted < budget;
  };
  for (bool progress = true; progress;) {
    progress = false;
    for (std::size_t rank = 0; rank < at.size(); ++rank) {
      if (at[rank] == schedule.lanes[rank].size()) continue;
      const Action& action = schedule.lanes[rank][at[rank]];
      bool runs = true;
      ForEachPart(action, [&](const Part& part) { runs = runs && ready(part); });
      if (!runs) continue;
      ForEachPart(action, [&](const Part& part) { done.push_back(part); });
      ++at[rank];
      progress = true;
    }
  }
  for (std::size_t rank = 0; rank < at.size(); ++rank) {
    if (at[rank] < schedule.lanes[rank].size()) return false;
  }
  return true;
}

struct Drawn {
  Schedule schedule;  // lowered
  Costs costs;
};

// Half of the schedules have RECVs at any place before their use.
Drawn DrawLowered(std::mt19937& random) {
  RandomShape shape = DrawShape(5, random);
  shape.pairs = random() % 3 == 0;
  shape.slices = random() % 4 == 0 ? 2 : 1;
  shape.communication = random() % 2 == 0;
  Schedule schedule = RandomSchedule(shape, random);
  if (!shape.communication) schedule = AddCommunication(schedule);
  return {std::move(schedule), RandomCosts(shape.placement, random)};
}

double EndOfRun(const Schedule& schedule, const Costs& costs) {
  return ValueOf(Simulate(schedule, costs)).makespan;
}

TEST(WaitSends, KeepTheirBudgetAndNeverDeadlock) {
  std::mt19937 random(31);
  int refused = 0, later = 0;
  const int draws = Draws(10000);
  for (int draw = 0; draw < draws; ++draw) {
    const auto [schedule, costs] = DrawLowered(random);
    SCOPED_TRACE(WriteCsv(schedule));
    const int budget = static_cast<int>(1 + random() % 4);
    const auto result = AddWaitSends(schedule, {.budget = budget});
    if (!result) {
      ASSERT_EQ(result.error().code, ErrorCode::kInfeasible);
      if (++refused % 10 == 0) {
        ASSERT_FALSE(SlowlyFeasible(schedule, budget));
      }
      continue;
    }
    ASSERT_TRUE(Validate(*result).empty()) << WriteCsv(*result);
    if (draw % 50 == 0) {
      ASSERT_TRUE(testing::SlowlyValid(*result));
    }
    ASSERT_EQ(WithoutWaits(*result).lanes, schedule.lanes);
    for (const Lane& lane : result->lanes) ASSERT_LE(MostInFlight(lane), budget);
    const double before = EndOfRun(schedule, costs), after = EndOfRun(*result, costs);
    ASSERT_GE(after, before - 1e-9);
    later += after > before + 1e-9 ? 1 : 0;
  }
  EXPECT_GT(refused, draws / 100) << "budgets that no order satisfies are tested, too";
  EXPECT_GT(later, draws / 100) << "and waits that cost time";
}

TEST(WaitSends, WithoutABudgetTakeNoTime) {
  std::mt19937 random(32);
  int waits = 0;
  for (int draw = Draws(2000); draw > 0; --draw) {
    const auto [schedule, costs] = DrawLowered(random);
    const Schedule result = ValueOf(AddWaitSends(schedule));
    SCOPED_TRACE(WriteCsv(result));
    ASSERT_TRUE(Validate(result).empty());
    ASSERT_NEAR(EndOfRun(result, costs), EndOfRun(schedule, costs), 1e-9);
    for (const Lane& lane : result.lanes) {
      for (const Action& action : lane) waits += IsWaitSend(action.first.op) ? 1 : 0;
    }
  }
  EXPECT_GT(waits, 0);
}

TEST(WaitSends, OurOrderOfMessagesAdmitsABudgetOfOne) {
  std::mt19937 random(33);
  for (int draw = Draws(1000); draw > 0; --draw) {
    RandomShape shape = DrawShape(5, random);
    const Schedule schedule = RandomSchedule(shape, random);
    const auto result = AddWaitSends(schedule, {.budget = 1});
    ASSERT_TRUE(result) << result.error().line() << '\n' << WriteCsv(schedule);
    ASSERT_TRUE(Validate(*result).empty());
  }
}

// The order in which the simulator runs ranks changes no time.
TEST(WaitSends, TakeTheSameTimeInEveryOrder) {
  std::mt19937 random(34);
  for (int draw = Draws(500); draw > 0; --draw) {
    const auto [schedule, costs] = DrawLowered(random);
    const auto result = AddWaitSends(schedule, {.budget = 1});
    if (!result) continue;
    Costs links = costs;
    links.topology.levels.emplace_back().latency = costs.comm;
    Timeline timeline;
    std::vector<SentMessage> messages;
    ASSERT_TRUE(Simulate(*result, links, {.timeline = &timeline, .messages = &messages}));
    Timeline expected;
    const auto simulated = Simulate(*result, costs, {.timeline = &expected});
    SCOPED_TRACE(WriteCsv(*result));
    ASSERT_TRUE(simulated);
    for (std::size_t rank = 0; rank < expected.spans.size(); ++rank) {
      for (std::size_t i = 0; i < expected.spans[rank].size(); ++i) {
        ASSERT_NEAR(timeline.spans[rank][i].start, expected.spans[rank][i].start, 1e-9);
        ASSERT_NEAR(timeline.spans[rank][i].end, expected.spans[rank][i].end, 1e-9);
      }
    }
    ASSERT_NEAR(Simulate(*result, links)->makespan, simulated->makespan, 1e-9);
  }
}

// F takes 1, a message 0.25. The second SEND may run once the first message, which left at 1, has
// arrived and its RECV is posted.
TEST(WaitSends, WaitForTheMessageAndItsReceive) {
  const Schedule schedule = Read(
      "0F0,0SEND_F0,0WAIT_SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
      "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n");
  const Costs costs = Uniform(schedule, 0.25);
  Timeline timeline;
  ASSERT_TRUE(Simulate(schedule, costs, {.timeline = &timeline}));
  EXPECT_EQ(timeline.spans[0][2].start, 1);
  EXPECT_EQ(timeline.spans[0][2].end, 1.25);
  EXPECT_EQ(timeline.spans[0][3].start, 1.25);
  const Schedule late = Read(
      "0F0,0SEND_F0,0F1,0SEND_F1,0WAIT_SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
      "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n");
  ASSERT_TRUE(Simulate(late, costs, {.timeline = &timeline}));
  EXPECT_EQ(timeline.spans[0][4].start, 2);
  EXPECT_EQ(timeline.spans[0][4].end, 4.25) << "1B0 ends then";
}

TEST(WaitSends, SendersHoldMessagesUntilThen) {
  const Schedule plain =
      AddCommunication(Read("0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n"));
  Costs costs = Uniform(plain, 0.25);
  costs.message_bytes = 8;
  for (StageCosts& stage : costs.stages) stage.activation = stage.activation_after_i = 0;
  const auto peak = [&](const Schedule& schedule) {
    Timeline timeline;
    std::vector<SentMessage> messages;
    EXPECT_TRUE(Simulate(schedule, costs, {.timeline = &timeline, .messages = &messages}));
    return MemoryByKind({schedule, timeline, messages, costs})[0].peak.amount;
  };
  EXPECT_EQ(peak(plain), 8) << "until a message arrives";
  Schedule late = plain;
  for (const int n : {0, 1, 2}) {
    late.lanes[0].push_back(MakeAction(Op::kWaitSendForward, 0, n));
    late.lanes[1].push_back(MakeAction(Op::kWaitSendBackward, 1, n));
  }
  ASSERT_TRUE(Validate(late).empty());
  EXPECT_EQ(peak(late), 24 + 8) << "three until the end, and a gradient";
  EXPECT_EQ(peak(ValueOf(AddWaitSends(plain, {.budget = 1}))), 8 + 8);
}

// A reduction takes 1. Its wait keeps the rank from what follows, and costs nothing at the end.
TEST(WaitReduceGrad, WaitsForTheReduction) {
  const Schedule schedule =
      Read("0F0,1F0,1B0,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n");
  Costs costs = Costs::Uniform(schedule.placement, 1, 2, 2, 2);
  for (StageCosts& stage : costs.stages) stage.reduce = 1;
  Timeline timeline;
  const auto result = Simulate(schedule, costs, {.timeline = &timeline});
  ASSERT_TRUE(result);
  EXPECT_EQ(timeline.spans[0][4].end, 5);
  EXPECT_EQ(timeline.spans[0][5].start, 5);
  EXPECT_EQ(result->makespan, 8);
  EXPECT_EQ(result->ranks[0].busy, 6);
  const Schedule deferred = AddReductionWaits(WithoutWaits(schedule), true);
  EXPECT_EQ(WriteCsv(deferred),
            "0F0,1F0,1B0,1REDUCE_GRAD,0B0,1WAIT_REDUCE_GRAD,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n");
  EXPECT_EQ(EndOfRun(deferred, costs), 7);
}

TEST(ReceiveSlots, AreTheFewestInRandomSchedules) {
  std::mt19937 random(35);
  for (int draw = Draws(2000); draw > 0; --draw) {
    const Schedule schedule = DrawLowered(random).schedule;
    const ReceiveSlots slots = AssignReceiveSlots(schedule);
    ASSERT_TRUE(CheckReceiveSlots(schedule, slots)) << WriteCsv(schedule);
    for (std::size_t rank = 0; rank < slots.count.size(); ++rank) {
      for (const std::size_t kind : {0, 1}) {
        if (slots.count[rank][kind] == 0) continue;
        int occupied = 0, most = 0;
        for (const Action& action : schedule.lanes[rank]) {
          const Part& part = action.first;
          if (IsRecv(part.op) && Index(MessageOf(part).kind) == kind)
            most = std::max(most, ++occupied);
          ForEachPart(action, [&](const Part& end) {
            const Placement& placement = schedule.placement;
            const int from = kind == 0 ? placement.previous(end.stage) : placement.next(end.stage);
            const bool sent = from >= 0 && placement.rank_of(from) != static_cast<int>(rank);
            if (EndsMicrobatch(end.op) && sent) --occupied;
          });
        }
        ASSERT_EQ(slots.count[rank][kind], most) << WriteCsv(schedule);
      }
    }
  }
}

}  // namespace
}  // namespace penstock
