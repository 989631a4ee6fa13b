// Messages over links that they share, and ranks that wait for their messages.
#include "simulate/network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "schedule/catalog.h"
#include "schedule/passes/passes.h"
#include "schedule/text/text.h"
#include "simulate/simulate.h"
#include "tests/results.h"
#include "tests/schedules/simulate/random_schedule.h"
#include "tests/schedules/simulate/timed_simulation.h"

namespace penstock {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Schedule Make(std::string_view name, int ranks, int microbatches) {
  return ValueOf(Generate(name, {.ranks = ranks, .microbatches = microbatches}));
}

double MakespanOf(const Schedule& schedule, const Costs& costs) {
  return ValueOf(Simulate(schedule, costs)).makespan;
}

// The arrivals of messages, by finding all rates anew at every event.
std::vector<double> Arrivals(const Topology& topology,
                             const std::vector<Network::Message>& messages) {
  std::vector<double> left, arrivals(messages.size(), -1);
  for (const Network::Message& message : messages) left.push_back(message.bytes);
  const auto links = [&](std::size_t i) {
    const std::size_t level = topology.LevelOf(messages[i].from, messages[i].to);
    const int in = topology.levels[level].half_duplex ? 0 : 1;
    const int n = static_cast<int>(level) * 1000;
    return std::pair(n + 2 * topology.OwnerOf(level, messages[i].from),
                     n + 2 * topology.OwnerOf(level, messages[i].to) + in);
  };
  double now = 0;
  for (;;) {
    double next = kInfinity;
    std::vector<double> rates(messages.size());
    for (std::size_t i = 0; i < messages.size(); ++i) {
      if (arrivals[i] >= 0) continue;
      if (messages[i].time > now) {
        next = std::min(next, messages[i].time);
        continue;
      }
      const auto [out, in] = links(i);
      int sharing_out = 0, sharing_in = 0;
      for (std::size_t j = 0; j < messages.size(); ++j) {
        if (arrivals[j] >= 0 || messages[j].time > now) continue;
        const auto [other_out, other_in] = links(j);
        sharing_out += other_out == out || other_in == out;
        sharing_in += other_out == in || other_in == in;
      }
      const LinkLevel& level = topology.levels[topology.LevelOf(messages[i].from, messages[i].to)];
      rates[i] = level.bandwidth / std::max(sharing_out, sharing_in);
      next = std::min(next, now + left[i] / rates[i]);
    }
    if (next == kInfinity) return arrivals;
    for (std::size_t i = 0; i < messages.size(); ++i) {
      if (arrivals[i] >= 0 || messages[i].time > now) continue;
      left[i] -= rates[i] * (next - now);
      if (left[i] > 1e-9 * messages[i].bytes) continue;
      const std::size_t level = topology.LevelOf(messages[i].from, messages[i].to);
      arrivals[i] = next + topology.levels[level].latency;
    }
    now = next;
  }
}

TEST(Network, SharesLinksEquallyAtEveryTime) {
  std::mt19937 random(7);
  const auto number = [&](double least, double most) {
    return std::uniform_real_distribution<double>(least, most)(random);
  };
  for (int trial = 0; trial < 200; ++trial) {
    Costs costs;
    costs.topology.levels = {
        {"node", 4, number(0, 1), number(1, 5), false, trial % 2 == 1},
        {"rack", 8, number(0, 1), number(1, 5), trial % 3 == 1, trial % 5 == 1},
        {"site", 16, number(0, 1), number(1, 5), trial % 4 != 1, false}};
    std::vector<Network::Message> messages(std::size_t{1} + random() % 30);
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const int from = static_cast<int>(random() % 16);
      const int to = (from + 1 + static_cast<int>(random() % 15)) % 16;
      messages[i] = {i, from, to, number(0, 20), number(1, 10)};
    }
    Network network(costs, 16);
    for (const Network::Message& message : messages) network.Send(message);
    std::vector<double> arrivals(messages.size(), -1);
    double last = 0;
    while (network.NextEvent() < kInfinity) {
      EXPECT_GE(network.NextEvent(), last);
      last = network.NextEvent();
      if (const auto arrived = network.Advance()) arrivals[arrived->key] = arrived->time;
    }
    const std::vector<double> expected = Arrivals(costs.topology, messages);
    for (std::size_t i = 0; i < messages.size(); ++i) {
      EXPECT_NEAR(arrivals[i], expected[i], 1e-6 * expected[i]) << "trial " << trial;
    }
  }
}

// Messages that are asked for are sent in order of time; without them the links are first taken to
// be free.
TEST(Network, FreeLinksTakeTheTimesOfMessagesInOrder) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const bool shared = round % 3 == 0;
    RandomShape shape{.placement = RandomPlacement(random),
                      .microbatches = std::uniform_int_distribution(1, 12)(random),
                      .pairs = round % 2 == 0,
                      .communication = round % 5 == 0};
    const Schedule schedule = RandomSchedule(shape, random);
    Costs costs = RandomCosts(schedule.placement, random);
    costs.message_bytes = std::uniform_real_distribution(0.001, shared ? 3.0 : 0.1)(random);
    costs.comm = 0.3;
    if (round % 4 != 0)
      costs.topology.levels = {
          {"node", 2, 0.05, 4},
          {.name = "network", .latency = 0.2, .bandwidth = 1, .shared = shared}};
    costs.transfers = round % 2 == 0 ? Transfers::kAsynchronous : Transfers::kBlocking;
    std::vector<SentMessage> messages;
    const auto in_order = Simulate(schedule, costs, {.messages = &messages});
    const auto free = Simulate(schedule, costs);
    ASSERT_TRUE(in_order && free) << "round " << round;
    EXPECT_EQ(free->makespan, in_order->makespan) << "round " << round;
    ASSERT_EQ(free->ranks.size(), in_order->ranks.size());
    for (std::size_t rank = 0; rank < free->ranks.size(); ++rank) {
      EXPECT_EQ(free->ranks[rank].last_end, in_order->ranks[rank].last_end) << "round " << round;
      EXPECT_EQ(free->ranks[rank].busy, in_order->ranks[rank].busy);
      EXPECT_EQ(free->ranks[rank].peak_memory, in_order->ranks[rank].peak_memory);
      EXPECT_EQ(free->ranks[rank].first_start, in_order->ranks[rank].first_start);
    }
  }
}

TEST(Network, EqualLinksWithoutLimitAreOneLatency) {
  std::mt19937 random(3);
  for (const Algorithm& algorithm : Catalog()) {
    const Schedule schedule = Make(algorithm.name, 4, 8);
    Costs costs = Uniform(schedule);
    for (StageCosts& stage : costs.stages) {
      stage.forward = std::uniform_real_distribution<double>(0.5, 2)(random);
      stage.backward_weight = std::uniform_real_distribution<double>(0.5, 2)(random);
    }
    costs.comm = 0.3;
    costs.early_gradients = random() % 2 == 0;
    const auto [expected, timeline] = SimulateWithTimes(schedule, costs);
    costs.topology.levels = {{"node", 2, 0.3}, {"site", LinkLevel::kAllRanks, 0.3}};
    const auto [result, with_topology] = SimulateWithTimes(schedule, costs);
    EXPECT_EQ(result.makespan, expected.makespan) << algorithm.name;
    EXPECT_EQ(result.bubble, expected.bubble) << algorithm.name;
    EXPECT_EQ(result.peak_memory, expected.peak_memory) << algorithm.name;
    for (std::size_t rank = 0; rank < timeline.spans.size(); ++rank) {
      ASSERT_EQ(timeline.spans[rank].size(), with_topology.spans[rank].size());
      for (std::size_t i = 0; i < timeline.spans[rank].size(); ++i) {
        EXPECT_EQ(timeline.spans[rank][i].end, with_topology.spans[rank][i].end)
            << algorithm.name << " rank " << rank << " position " << i;
      }
    }
  }
}

TEST(Network, WaitingForMessagesIsNeverFaster) {
  for (const Algorithm& algorithm : Catalog()) {
    for (const double comm : {0.0, 0.25, 2.0}) {
      const Schedule schedule = Make(algorithm.name, 4, 8);
      Costs costs = Uniform(schedule);
      costs.comm = comm;
      const double asynchronous = MakespanOf(schedule, costs);
      costs.transfers = Transfers::kBlocking;
      const double blocking = MakespanOf(schedule, costs);
      if (comm == 0) {
        EXPECT_EQ(blocking, asynchronous) << algorithm.name;
      }
      EXPECT_GE(blocking, asynchronous) << algorithm.name;
      costs.transfers = Transfers::kBatched;
      EXPECT_GE(MakespanOf(schedule, costs), blocking) << algorithm.name;
    }
  }
}

// Two ranks of GPipe: the first sends each activation, the second each gradient.
TEST(Network, BlockingTransfersOccupyTheirSender) {
  const Schedule schedule = Make("gpipe", 2, 5);
  Costs costs = Uniform(schedule);
  costs.comm = 0.5;
  costs.transfers = Transfers::kBlocking;
  const Timeline timeline = TimelineOf(schedule, costs);
  for (int n = 0; n < 5; ++n) EXPECT_EQ(timeline.spans[0][n].start, 1.5 * n);
  for (int n = 1; n < 5; ++n) {
    EXPECT_EQ(timeline.spans[1][5 + n].start, timeline.spans[1][4 + n].end + 0.5);
  }
}

// The second rank takes an activation only between two of its actions, and waits for it.
TEST(Network, BatchedTransfersOccupyBothRanks) {
  const Schedule schedule = Make("gpipe", 2, 4);
  Costs costs = Uniform(schedule);
  costs.stages[1].forward = 3;
  costs.comm = 0.5;
  costs.transfers = Transfers::kBatched;
  const Timeline timeline = TimelineOf(schedule, costs);
  EXPECT_EQ(timeline.spans[0][1].start, 1.5);
  EXPECT_EQ(timeline.spans[1][0].start, 1.5);  // to 4.5
  // The second activation is there at 2.5, and is taken at 4.5.
  EXPECT_EQ(timeline.spans[0][2].start, 5);
  EXPECT_EQ(timeline.spans[1][1].start, 5);
}

// The last rank of 1F1B takes the second activation before its first backward, which needs none.
TEST(Network, BatchedTransfersDelayActionsThatDoNotReadThem) {
  const Schedule schedule = Make("1f1b", 2, 4);
  Costs costs = Uniform(schedule);
  costs.comm = 0.5;
  costs.transfers = Transfers::kBatched;
  const Timeline timeline = TimelineOf(schedule, costs);
  EXPECT_EQ(timeline.spans[0][1].end, 2.5);
  EXPECT_EQ(timeline.spans[1][0].end, 2.5);
  EXPECT_EQ(timeline.spans[1][1].start, 3);
}

// A rank that waits for its own transfer is between two actions, so messages leave meanwhile.
TEST(Network, BatchedTransfersLeaveWhileARankWaitsForItsOwnTransfers) {
  struct Case {
    const char* lanes;
    ValueKind kind;
    int stage, microbatch;
    double arrived;
  };
  // The second rank waits from 3 to 5 for its RELOAD; from 5.5 to 10.5 for its REDUCE_GRAD.
  const Case cases[] = {
      {"0F0,0F1,0B0,0B1\n1F0,1OFFLOAD0,1RELOAD0,1B0,1F1,1B1\n", ValueKind::kActivation, 0, 1, 4},
      {"0F0,0F1,0B0,0B1\n1F0,1OFFLOAD0,1RELOAD0,1RECOMPUTE0,1B0,1F1,1B1\n", ValueKind::kActivation,
       0, 1, 4},
      {"0F0,0B0,0F1,0B1\n1F0,1B0,1REDUCE_GRAD,1STEP,1F1,1B1\n", ValueKind::kActivation, 0, 1, 9.5},
  };
  for (const Case& each : cases) {
    const Schedule schedule = ParseCsv(each.lanes).value();
    Costs costs = Uniform(schedule);
    costs.stages[0].forward = 1.5;
    costs.comm = 0.5;
    costs.offload = costs.reload = 1;
    for (StageCosts& stage : costs.stages) {
      stage.reduce = stage.step = 5;
      stage.input_activation = 1;
    }
    costs.transfers = Transfers::kBatched;
    std::vector<SentMessage> messages;
    ASSERT_TRUE(Simulate(schedule, costs, {.messages = &messages})) << each.lanes;
    const auto sent = std::ranges::find_if(messages, [&](const SentMessage& message) {
      return message.kind == each.kind && message.stage == each.stage &&
             message.microbatch == each.microbatch;
    });
    ASSERT_NE(sent, messages.end());
    EXPECT_EQ(sent->arrived, each.arrived) << each.lanes;
  }
}

TEST(Network, DirectionsOfALinkShareItIfItIsHalfDuplex) {
  // Ranks 0 to 3 are a node and 4 to 7 another.
  const Schedule schedule = Make("1f1b", 8, 16);
  Costs costs = Uniform(schedule);
  costs.message_bytes = 1;
  costs.topology.levels = {{"node", 4, 0, 0}, {"site", LinkLevel::kAllRanks, 0.1, 2}};
  const double full = MakespanOf(schedule, costs);
  costs.topology.levels[1].half_duplex = true;
  const double half = MakespanOf(schedule, costs);
  EXPECT_GE(half, full);
  costs.topology.levels[1].bandwidth = 0.25;  // a message takes longer than a forward and backward
  const double slow = MakespanOf(schedule, costs);
  EXPECT_GT(slow, 16 * 2 * 4.0);  // 16 messages in each direction, of 4 each
}

// Interleaved chunks send from the last rank to the first as well, so two ranks of each node use
// its link to the other.
TEST(Network, RanksOfANodeShareItsLink) {
  const auto schedule = Generate("interleaved", {.ranks = 8, .chunks = 2, .microbatches = 16});
  ASSERT_TRUE(schedule);
  Costs costs = Uniform(*schedule);
  costs.message_bytes = 1;
  costs.topology.levels = {{"node", 4}, {"site", LinkLevel::kAllRanks, 0, 0.25}};
  const double private_links = MakespanOf(*schedule, costs);
  costs.topology.levels[1].shared = true;
  const double shared_links = MakespanOf(*schedule, costs);
  EXPECT_GT(shared_links, private_links);
  // Two activations and a gradient of each microbatch leave the first node, and each takes 4.
  EXPECT_GE(shared_links, 16 * 3 * 4.0);
}

// The tensor after stage 1 is four times as large as the others, in both directions.
TEST(Network, MessagesHaveTheSizeOfTheirTensor) {
  for (const bool sends : {false, true}) {
    Schedule schedule = Make("gpipe", 4, 1);
    if (sends) schedule = AddCommunication(schedule);
    Costs costs = Uniform(schedule);
    costs.message_bytes = 2;
    costs.stages[1].message_scale = 4;
    costs.stages[3].message_scale = 100;  // nobody receives it
    costs.topology.levels = {{"all", LinkLevel::kAllRanks, 0.5, 4}};
    EXPECT_EQ(MakespanOf(schedule, costs), 4 * 3 + 2 * (3 * 0.5 + 0.5 + 2 + 0.5));
  }
}

TEST(Network, OneScaledTensorIsASizeOfItsOwn) {
  std::mt19937 random(12);
  for (int trial = 0; trial < 50; ++trial) {
    const Schedule schedule = Make(trial % 2 == 0 ? "1f1b" : "zb-h1", 2, 6);
    Costs scaled = Uniform(schedule), plain = scaled;
    const double scale = std::uniform_real_distribution<double>(0, 3)(random);
    scaled.message_bytes = 1;
    scaled.stages[0].message_scale = scale;
    scaled.topology.levels = {{"all", LinkLevel::kAllRanks, 0, 8}};
    plain.message_bytes = scale;
    plain.topology = scaled.topology;
    EXPECT_EQ(MakespanOf(schedule, scaled), MakespanOf(schedule, plain));
  }
}

TEST(Network, RefusesTopologiesThatDoNotFit) {
  const Schedule schedule = Make("1f1b", 8, 8);
  Costs costs = Uniform(schedule);
  const auto refused = [&](std::vector<LinkLevel> levels) {
    costs.topology.levels = std::move(levels);
    return LineOf(Simulate(schedule, costs));
  };
  EXPECT_NE(refused({{"node", 4}}).find("8"), std::string::npos);
  EXPECT_NE(refused({{"node", 4}, {"rack", 6}}).find("rack"), std::string::npos);
  EXPECT_NE(refused({{"node", 4}, {"rack", 4}}).find("rack"), std::string::npos);
  EXPECT_NE(refused({{"node", 8, -1}}).find("node"), std::string::npos);
  EXPECT_NE(refused({{"site"}, {"world"}}).find("site"), std::string::npos);
  EXPECT_NE(refused({{"bus", 8, 0, 1, true}}).find("bus"), std::string::npos);
}

}  // namespace
}  // namespace penstock
