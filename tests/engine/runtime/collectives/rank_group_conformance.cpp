// What every implementation of rank groups guarantees.
#include "tests/engine/runtime/collectives/rank_group_conformance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "tests/engine/collective/collective_reference.h"
#include "tests/engine/runtime/expect_idle.h"
#include "tests/engine/runtime/random_schedule.h"
#include "tests/results.h"

namespace penstock {
namespace {

INSTANTIATE_TEST_SUITE_P(RankGroups, RankGroupConformance, testing::ValuesIn(TestedRankGroups()),
                         [](const auto& info) { return info.param.name; });

constexpr ElementType kTypes[] = {ElementType::kFloat32, ElementType::kBfloat16,
                                  ElementType::kFloat64, ElementType::kInt64};

// Returns random finite elements.
ByteVector RandomElements(Random& random, ElementType type, std::size_t elements) {
  ByteVector bytes(elements * BytesOfElement(type));
  std::uniform_real_distribution<double> real(-100, 100);
  for (std::size_t i = 0; i < elements; ++i) {
    if (type == ElementType::kFloat32) SetElementAt(bytes, i, static_cast<float>(real(random)));
    if (type == ElementType::kFloat64) SetElementAt(bytes, i, real(random));
    if (type == ElementType::kInt64)
      SetElementAt(bytes, i, std::uint64_t{random()} << 32 | random());
    if (type == ElementType::kBfloat16) {
      SetElementAt(bytes, i, NearestBfloat16(static_cast<float>(real(random))));
    }
  }
  return bytes;
}

// A collective of all ranks: the inputs, and what each rank must get.
struct PlannedCollective {
  CollectiveKind kind = CollectiveKind::kBarrier;
  ElementType type = ElementType::kFloat32;
  int root = 0;
  bool in_place = false;
  std::vector<ByteVector> inputs, expected;              // by rank
  std::vector<std::vector<std::size_t>> sent, received;  // bytes of an all-to-all, by rank

  // Starts the rank's collective. `output` has the size of the expected output; broadcasts and
  // collectives in place find their input there.
  RankGroup::Ticket Start(RankGroup& end, ByteVector& output) const;
};

RankGroup::Ticket PlannedCollective::Start(RankGroup& end, ByteVector& output) const {
  const std::size_t rank = Index(end.rank());
  ConstBytes input = inputs[rank];
  if (in_place || kind == CollectiveKind::kBroadcast) {
    const bool gathers = kind == CollectiveKind::kAllGather;
    const Bytes place = Bytes(output).subspan(gathers ? rank * input.size() : 0, input.size());
    std::ranges::copy(input, place.begin());
    input = place;
  }
  switch (kind) {
    case CollectiveKind::kAllGather:
      return end.AllGather(input, output).value();
    case CollectiveKind::kReduceScatter:
      return end.ReduceScatter(input, output, type).value();
    case CollectiveKind::kAllReduce:
      return end.AllReduce(input, output, type).value();
    case CollectiveKind::kAllToAll:
      return end.AllToAll(input, sent[rank], output, received[rank]).value();
    case CollectiveKind::kBroadcast:
      return end.Broadcast(output, root).value();
    case CollectiveKind::kReduce:
      return end.Reduce(input, output, type, root).value();
    case CollectiveKind::kBarrier:
      break;
  }
  return end.Barrier().value();
}

// Block r of rank s has lengths[s][r] bytes.
void PlanAllToAll(Random& random, std::size_t ranks, bool even, std::size_t most,
                  PlannedCollective& plan) {
  plan.inputs.resize(ranks);
  plan.expected.resize(ranks);
  plan.received.resize(ranks);
  for (std::size_t from = 0; from < ranks; ++from) {
    plan.sent.emplace_back();
    for (std::size_t to = 0; to < ranks; ++to) {
      plan.sent[from].push_back(even ? most : random() % (most + 1));
      for (std::size_t i = 0; i < plan.sent[from][to]; ++i) {
        plan.inputs[from].push_back(static_cast<std::byte>(random()));
        plan.expected[to].push_back(plan.inputs[from].back());
      }
      plan.received[to].push_back(plan.sent[from][to]);
    }
  }
}

void PlanExpected(std::size_t ranks, std::size_t elements, PlannedCollective& plan) {
  ByteVector all;
  for (const ByteVector& input : plan.inputs) all.insert(all.end(), input.begin(), input.end());
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (plan.kind == CollectiveKind::kAllGather) plan.expected.push_back(all);
    if (plan.kind == CollectiveKind::kBroadcast) {
      plan.expected.push_back(plan.inputs[Index(plan.root)]);
    }
    if (plan.kind == CollectiveKind::kAllReduce) {
      plan.expected.push_back(SumOfRange(plan.inputs, 0, elements, plan.type));
    }
    if (plan.kind == CollectiveKind::kReduce) {
      const ByteVector& unchanged =
          plan.in_place ? plan.inputs[rank] : ByteVector(plan.inputs[rank].size());
      plan.expected.push_back(
          rank == Index(plan.root) ? SumOfRange(plan.inputs, 0, elements, plan.type) : unchanged);
    }
    if (plan.kind == CollectiveKind::kReduceScatter) {
      const std::size_t block = elements / ranks;
      plan.expected.push_back(SumOfRange(plan.inputs, rank * block, (rank + 1) * block, plan.type));
    }
    if (plan.kind == CollectiveKind::kBarrier) plan.expected.emplace_back();
  }
}

PlannedCollective RandomPlan(Random& random, std::size_t ranks, std::size_t most_elements) {
  PlannedCollective plan;
  plan.kind = static_cast<CollectiveKind>(Uniform(random, 0, 6));
  plan.type = kTypes[Index(Uniform(random, 0, 3))];
  plan.root = Uniform(random, 0, static_cast<int>(ranks) - 1);
  plan.in_place = Uniform(random, 0, 1) == 0 &&
                  (plan.kind == CollectiveKind::kAllGather ||
                   plan.kind == CollectiveKind::kAllReduce || plan.kind == CollectiveKind::kReduce);
  std::size_t elements = random() % 3 == 0 ? random() % 3 : random() % most_elements;
  if (plan.kind == CollectiveKind::kBarrier) elements = 0;
  if (plan.kind == CollectiveKind::kReduceScatter) elements *= ranks;
  if (plan.kind == CollectiveKind::kAllToAll) {
    PlanAllToAll(random, ranks, random() % 2 == 0, elements, plan);
    return plan;
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    plan.inputs.push_back(RandomElements(random, plan.type, elements));
  }
  PlanExpected(ranks, elements, plan);
  return plan;
}

// Runs the plans on the rank, up to four in flight, and waits for them in an order of its own.
void RunPlans(const std::vector<PlannedCollective>& plans, RankGroup& end) {
  Random order(static_cast<unsigned>(end.rank()));
  for (std::size_t first = 0; first < plans.size(); first += 4) {
    const std::size_t count = std::min<std::size_t>(4, plans.size() - first);
    std::vector<ByteVector> outputs;
    std::vector<std::pair<std::size_t, RankGroup::Ticket>> tickets;
    for (std::size_t i = 0; i < count; ++i) {
      outputs.emplace_back(plans[first + i].expected[Index(end.rank())].size());
    }
    for (std::size_t i = 0; i < count; ++i) {
      tickets.emplace_back(i, plans[first + i].Start(end, outputs[i]));
    }
    std::ranges::shuffle(tickets, order);
    for (const auto& [i, ticket] : tickets) {
      EXPECT_TRUE(Succeeds(end.Wait(ticket)));
      const PlannedCollective& plan = plans[first + i];
      EXPECT_TRUE(outputs[i] == plan.expected[Index(end.rank())])
          << NameOf(plan.kind) << " of " << NameOf(plan.type) << ", " << outputs[i].size()
          << " bytes, rank " << end.rank() << " of " << end.ranks();
    }
  }
}

// Every implementation's result is bitwise the reference's.
TEST_P(RankGroupConformance, RandomCollectivesMatchTheReferenceBitwise) {
  Random random(17);
  for (int ranks = 1; ranks <= 5; ++ranks) {
    std::vector<PlannedCollective> plans;
    for (int i = 0; i < 60; ++i) plans.push_back(RandomPlan(random, Index(ranks), 3000));
    TestedGroup group(GetParam(), ranks);
    group.OnEachRank([&](RankGroup& end) { RunPlans(plans, end); });
    if (HasFailure()) FAIL() << ranks << " ranks";
  }
}

TEST_P(RankGroupConformance, LargeCollectivesMatchTheReferenceBitwise) {
  Random random(18);
  for (const int ranks : {2, 3}) {
    std::vector<PlannedCollective> plans;
    for (int i = 0; i < 12; ++i) plans.push_back(RandomPlan(random, Index(ranks), 400'000));
    TestedGroup group(GetParam(), ranks);
    group.OnEachRank([&](RankGroup& end) { RunPlans(plans, end); });
  }
}

// One thread starts all collectives of all ranks, and then waits for them.
TEST_P(RankGroupConformance, StartsNeverWait) {
  constexpr int kRanks = 3;
  Random random(19);
  std::vector<PlannedCollective> plans;
  for (int i = 0; i < 12; ++i) plans.push_back(RandomPlan(random, kRanks, 5000));
  TestedGroup group(GetParam(), kRanks);
  std::vector<std::vector<ByteVector>> outputs(plans.size(), std::vector<ByteVector>(kRanks));
  std::vector<std::vector<RankGroup::Ticket>> tickets(plans.size());
  for (int rank = 0; rank < kRanks; ++rank) {
    for (std::size_t i = 0; i < plans.size(); ++i) {
      ByteVector& output = outputs[i][Index(rank)];
      output.resize(plans[i].expected[Index(rank)].size());
      tickets[i].push_back(plans[i].Start(group.end(rank), output));
    }
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    for (std::size_t i = plans.size(); i-- > 0;) {
      ASSERT_TRUE(group.end(rank).Wait(tickets[i][Index(rank)]));
      EXPECT_TRUE(outputs[i][Index(rank)] == plans[i].expected[Index(rank)]);
    }
  }
}

TEST_P(RankGroupConformance, InputsMayChangeAfterTheWait) {
  TestedGroup group(GetParam(), 2);
  ByteVector input(100'000, std::byte{1});
  const ByteVector other(100'000, std::byte{2});
  std::vector<ByteVector> outputs(2, ByteVector(200'000));
  const auto first = group.end(0).AllGather(input, outputs[0]).value();
  const auto second = group.end(1).AllGather(other, outputs[1]).value();
  ASSERT_TRUE(group.end(0).Wait(first));
  std::ranges::fill(input, std::byte{9});
  ASSERT_TRUE(group.end(1).Wait(second));
  EXPECT_TRUE(outputs[1] == outputs[0]);
  EXPECT_EQ(outputs[1][0], std::byte{1});
}

TEST_P(RankGroupConformance, BarrierWaitsForEveryRank) {
  constexpr int kRanks = 4;
  TestedGroup group(GetParam(), kRanks);
  std::atomic<int> arrived{0};
  group.OnEachRank([&](RankGroup& end) {
    for (int round = 1; round <= 20; ++round) {
      arrived.fetch_add(1);
      ASSERT_TRUE(end.Wait(end.Barrier().value()));
      EXPECT_GE(arrived.load(), round * kRanks);
    }
  });
}

// Rank r of the run is in the groups of its row and its column, and waits in an order of its own.
TEST_P(RankGroupConformance, RanksMayBeInSeveralGroups) {
  const std::vector<RankGroupMembers> members = {
      {"row 0", {0, 1}}, {"row 1", {2, 3}}, {"column 0", {0, 2}}, {"column 1", {1, 3}}};
  TestedGroups groups(GetParam(), 4, members);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      RankGroup& row = groups.end(rank % 2, rank / 2);
      RankGroup& column = groups.end(rank / 2, 2 + rank % 2);
      for (std::int64_t round = 0; round < 50; ++round) {
        std::int64_t sums[] = {rank + round, rank + round};
        const Bytes of_row = std::as_writable_bytes(std::span(sums, 1));
        const Bytes of_column = std::as_writable_bytes(std::span(sums + 1, 1));
        const auto row_ticket = row.AllReduce(of_row, of_row, ElementType::kInt64).value();
        const auto column_ticket =
            column.AllReduce(of_column, of_column, ElementType::kInt64).value();
        const bool row_first = rank % 2 == 0;
        ASSERT_TRUE(row_first ? row.Wait(row_ticket) : column.Wait(column_ticket));
        ASSERT_TRUE(row_first ? column.Wait(column_ticket) : row.Wait(row_ticket));
        EXPECT_EQ(sums[0], 4 * (rank / 2) + 1 + 2 * round);
        EXPECT_EQ(sums[1], 2 * (rank % 2) + 2 + 2 * round);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(RankGroupConformance, AbortOnEitherSideEndsEveryWaitWithTheFirstReason) {
  for (const int aborting : {0, 2}) {
    TestedGroup group(GetParam(), 3);
    std::atomic<int> started{0};
    group.OnEachRank([&](RankGroup& end) {
      ByteVector input(1000);
      ByteVector output(3000);
      if (end.rank() == 1) {  // the other two wait for this rank
        for (int seen = 0; seen < 2; seen = started.load()) started.wait(seen);
        group.end(aborting).Abort({ErrorCode::kUnavailable, "first"});
        group.end(aborting).Abort({ErrorCode::kInternal, "second"});
        return;
      }
      const auto ticket = end.AllGather(input, output).value();
      started.fetch_add(1);
      started.notify_all();
      EXPECT_TRUE(FailsWith(end.Wait(ticket), ErrorCode::kUnavailable, "first"));
      EXPECT_EQ(LineOf(end.Wait(end.Barrier().value())), "first");
    });
  }
}

// Returns the error of rank 0, whose call is an all-gather of 8 bytes.
Error ErrorAgainst(const RankGroupCase& tested, const std::function<void(RankGroup&)>& other) {
  TestedGroup group(tested, 2);
  Error error;
  group.OnEachRank([&](RankGroup& end) {
    if (end.rank() == 1) return other(end);
    ByteVector input(8);
    ByteVector output(16);
    const Status status = end.Wait(end.AllGather(input, output).value());
    if (!status) error = status.error();
  });
  return error;
}

TEST_P(RankGroupConformance, DifferentCollectivesAreAnErrorOfEveryRank) {
  const auto contains = [](const Error& error, std::string_view part) {
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
    EXPECT_NE(error.line().find(part), std::string::npos) << error.line();
  };
  ByteVector input(24);
  ByteVector output(24);
  const auto fails = [](RankGroup& end, Result<RankGroup::Ticket> ticket) {
    EXPECT_TRUE(Refused(end.Wait(ticket.value()), "", ErrorCode::kInvalidArgument));
  };
  contains(ErrorAgainst(
               GetParam(),
               [&](RankGroup& end) { fails(end, end.AllGather(Bytes(input).first(12), output)); }),
           "all-gather 0 of group all: ");
  contains(ErrorAgainst(GetParam(),
                        [&](RankGroup& end) {
                          fails(end, end.AllToAll(Bytes(input).first(16), Bytes(output).first(16)));
                        }),
           "calls all-to-all");
  contains(
      ErrorAgainst(GetParam(),
                   [&](RankGroup& end) { fails(end, end.Broadcast(Bytes(input).first(8), 1)); }),
      "calls broadcast of rank 1");
  contains(ErrorAgainst(GetParam(),
                        [&](RankGroup& end) {
                          const Bytes data = Bytes(input).first(8);
                          fails(end, end.Reduce(data, data, ElementType::kInt64, 0));
                        }),
           "calls reduce of int64 to rank 0");
}

TEST_P(RankGroupConformance, SizesThatDoNotFitAreRefused) {
  TestedGroup group(GetParam(), 2);
  RankGroup& end = group.end(0);
  ByteVector bytes(100);
  const auto span = [&](std::size_t size) { return Bytes(bytes).first(size); };
  const auto message = [](const Result<RankGroup::Ticket>& ticket) {
    return ticket ? "none" : ticket.error().line();
  };
  EXPECT_EQ(message(end.AllGather(span(8), span(17))),
            "all-gather: the output has 17 bytes instead of 16");
  EXPECT_EQ(message(end.ReduceScatter(span(24), span(8), ElementType::kFloat32)),
            "reduce-scatter: the input has 24 bytes instead of 16");
  EXPECT_EQ(message(end.AllReduce(span(6), span(6), ElementType::kFloat32)),
            "all-reduce: 6 and 6 bytes are not whole elements of float32");
  EXPECT_EQ(message(end.AllToAll(span(9), span(9))),
            "all-to-all: 9 bytes of input and 9 of output are not 2 equal blocks each");
  EXPECT_EQ(message(end.AllToAll(span(9), {4, 4}, span(8), {4, 4})),
            "all-to-all: the input has 9 bytes instead of 8");
  EXPECT_EQ(message(end.Broadcast(span(8), 2)), "broadcast: root 2 is not one of the 2 ranks");
  EXPECT_EQ(message(end.Reduce(span(8), span(8), ElementType::kFloat32, -1)),
            "reduce: root -1 is not one of the 2 ranks");
  EXPECT_EQ(end.Wait(7).error().line(), "rank 0 of group all has no collective 7 in flight");
}

TEST_P(RankGroupConformance, LateRankIsNamed) {
  TestedGroup group(GetParam(), 3, std::chrono::milliseconds(20));
  ByteVector data(8);
  const auto started = group.end(1).AllReduce(data, data, ElementType::kInt64).value();
  ByteVector own(8);
  const auto ticket = group.end(0).AllReduce(own, own, ElementType::kInt64).value();
  const Status late = group.end(0).Wait(ticket);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_TRUE(late.error().line().ends_with(" rank 0 waited 20 ms for rank 2") ||
              late.error().line().ends_with(" rank 0 waited 20 ms for ranks 1, 2"))
      << late.error().line();
  EXPECT_TRUE(Refused(group.end(1).Wait(started), "", ErrorCode::kDeadlineExceeded));
}

TEST_P(RankGroupConformance, RankThatHasLeftIsNamed) {
  for (const bool in_flight : {false, true}) {
    TestedGroup group(GetParam(), 3);
    ByteVector input(8);
    ByteVector output(24);
    const auto ticket = group.end(0).AllGather(input, output).value();
    ByteVector never(24);
    if (in_flight) {
      ASSERT_TRUE(group.end(2).AllGather(input, never));
    }
    std::thread leaves([&] { group.Destroy(2); });
    const Status status = group.end(0).Wait(ticket);
    leaves.join();
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(status.error().line(),
              in_flight ? "all-gather 0 of group all: rank 2 has left the group without waiting"
                        : "all-gather 0 of group all: rank 0 waits for rank 2, which has left the "
                          "group");
  }
}

TEST_P(RankGroupConformance, RankMayLeaveAfterItsLastWait) {
  TestedGroup group(GetParam(), 2);
  std::int64_t values[] = {1, 2};
  std::vector<RankGroup::Ticket> tickets;
  for (const int rank : {0, 1}) {
    const Bytes value = std::as_writable_bytes(std::span(values + rank, 1));
    tickets.push_back(group.end(rank).AllReduce(value, value, ElementType::kInt64).value());
  }
  ASSERT_TRUE(group.end(1).Wait(tickets[1]));
  group.Destroy(1);
  ASSERT_TRUE(group.end(0).Wait(tickets[0]));
  EXPECT_EQ(values[0], 3);
}

TEST_P(RankGroupConformance, WaitingUsesNoCpu) {
  TestedGroup group(GetParam(), 2);
  std::atomic<bool> waits{false};
  std::thread waiter([&] {
    const auto ticket = group.end(0).Barrier().value();
    waits.store(true);
    EXPECT_TRUE(group.end(0).Wait(ticket));
  });
  ExpectIdle(waiter, waits);
  EXPECT_TRUE(group.end(1).Wait(group.end(1).Barrier().value()));
  waiter.join();
}

TEST_P(RankGroupConformance, LostProcessEndsEveryWait) {
  if (GetParam().processes < 2) GTEST_SKIP() << "there is one process";
  auto processes = GetParam().make_processes(2);
  const LocalRanks ranks = LocalRanks::Split(2, 2, 0).value();
  auto ends = MakeRankGroups({{"all", {0, 1}}}, ranks, processes[0].get()).value();
  ByteVector input(8);
  ByteVector output(16);
  const auto ticket = ends[0][0]->AllGather(input, output).value();
  std::thread ending([&] { processes.pop_back(); });
  const Status status = ends[0][0]->Wait(ticket);
  ending.join();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(status.error().line(),
            "all-gather 0 of group all: rank 0 waits for rank 1: process 1 is gone: it has "
            "ended or its connection is broken");
}

}  // namespace
}  // namespace penstock
