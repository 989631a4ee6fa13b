// The stated properties of each algorithm, compared with the simulator: memory, figures at p = 8,
// names, and refusals. tests/schedules/simulate/closed_form_test.cpp tests closed forms.
#include <gtest/gtest.h>

#include <random>

#include "tests/cases.h"
#include "tests/results.h"
#include "tests/schedules/schedule/figures.h"

namespace penstock::testing {
namespace {

struct Stated {
  std::string_view name;
  ScheduleParams params;
  double makespan = 0, peak_memory = 0;
  OverlapRule overlap = {};
};

TEST(AlgorithmFigures, MatchTheStatedFiguresAtEightRanks) {
  const auto with = [](int m, auto set) {
    ScheduleParams params = Sized(8, m);
    set(params);
    return params;
  };
  const ScheduleParams plain = Sized(8, 32);
  const OverlapRule sum = {OverlapRule::Kind::kSum, 1};
  const std::vector<Stated> all = {
      {"zb-h1", plain, 103, 8},
      {"zb-h2", plain, 103, 15},
      {"zbv", plain, 99.5, 8},
      {"zbv-formatted", plain, 99.5, 8},
      {"interleaved-zb", with(32, [](auto& p) { p.chunks = 4; }), 97.75, 8},
      {"interleaved-zb", with(32, [](auto& p) { p.chunks = 4, p.group = 4; }), 101.5, 5},
      {"interleaved", with(32, [](auto& p) { p.chunks = 4, p.group = 4; }), 101.5, 5},
      {"dualpipe", plain, 76, 9},
      {"dualpipe", plain, 102, 9, sum},
      {"dualpipev", plain, 76, 8.5},
      {"dualpipev", plain, 103, 8.5, sum},
      {"hanayo", with(8, [](auto& p) { p.waves = 1; }), 38, 8},
      {"hanayo", with(8, [](auto& p) { p.waves = 2; }), 31.5, 8},
      {"hanayo", with(8, [](auto& p) { p.waves = 4; }), 27.75, 8},
      {"hanayo", with(32, [](auto& p) { p.waves = 1; }), 134.5, 8},
      {"hanayo", with(32, [](auto& p) { p.waves = 2; }), 120.75, 8},
      {"hanayo", with(32, [](auto& p) { p.waves = 4; }), 111.875, 8},
      {"chimera", plain, 126, 8},
      {"chimera", with(32, [](auto& p) { p.split = true; }), 99, 8},
      {"seq1f1b", with(32, [](auto& p) { p.slices = 4; }), 101.25, 2.75},
      {"seq1f1b", with(32, [](auto& p) { p.slices = 4, p.split = true; }), 97.75, 2.75},
  };
  for (const Stated& stated : all) {
    const Figures figures = FiguresOf(stated.name, stated.params, stated.overlap);
    const std::string where = fmt::format("{} v={} k={} w={}", stated.name, stated.params.chunks,
                                          stated.params.slices, stated.params.waves);
    EXPECT_NEAR(figures.makespan, stated.makespan, 1e-9) << where;
    EXPECT_NEAR(figures.peak_memory, stated.peak_memory, 1e-9) << where;
  }
}

TEST(AlgorithmFigures, NoBubbleWithinTheSpan) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (int microbatches = 2 * ranks - 1; microbatches <= 2 * ranks + 9; microbatches += 3) {
      const ScheduleParams params = Sized(ranks, microbatches);
      for (const std::string_view name : {"zb-h2", "zbv", "zbv-formatted"}) {
        EXPECT_NEAR(FiguresOf(name, params).span_bubble, 0, 1e-9)
            << name << " p=" << ranks << " m=" << microbatches;
      }
    }
  }
}

TEST(AlgorithmFigures, VeesStayWithinTheirMemory) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    for (const int microbatches : {1, 3, 12}) {
      const ScheduleParams params = Sized(ranks, microbatches);
      EXPECT_LE(FiguresOf("v-min", params).peak_memory, (ranks + 1) / 3 + 1 + 1e-9);
      EXPECT_LE(FiguresOf("v-half", params).peak_memory, ranks / 2 + 1 + 1e-9);
      EXPECT_LE(FiguresOf("v-1f1b", params).peak_memory, 2 * ranks / 3 + 1 + 1e-9);
    }
  }
}

struct Searched {
  std::string_view name;
  std::vector<std::string_view> by_rule;  // rule-based schedules, whose memory is the limit
};

ScheduleParams RandomTimes(std::mt19937& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  ScheduleParams params = Sized(2 + below(6), 1);
  params.microbatches = 1 + below(3 * params.ranks);
  if (below(3) > 0) {
    params.backward_input = 0.6 + 0.1 * below(10);
    params.backward_weight = 0.4 + 0.1 * below(10);
  }
  params.comm = below(2) == 0 ? 0 : 0.1 * below(6);
  return params;
}

TEST(AlgorithmFigures, SearchesAreNoSlowerThanRulesInTheSameMemory) {
  const Searched all[] = {{"zb-auto", {"zb-h1", "zb-h2"}}, {"v-auto", {"zbv", "v-half", "v-min"}}};
  std::mt19937 random(11);
  for (int i = 0; i < Cases(12); ++i) {
    for (const auto& [name, by_rule] : all) {
      ScheduleParams params = RandomTimes(random);
      for (const std::string_view rule : by_rule) {
        params.memory_limit.reset();
        const Figures figures = FiguresOf(rule, params);
        params.memory_limit = figures.peak_memory;
        EXPECT_LE(FiguresOf(name, params).makespan, figures.makespan * (1 + 1e-9)) << fmt::format(
            "{}, {} p={} m={} I={} W={} comm={}", name, rule, params.ranks, params.microbatches,
            params.backward_input, params.backward_weight, params.comm);
      }
    }
  }
}

// A search does not know the result for a lower limit, so its own may be slightly longer.
TEST(AlgorithmFigures, MoreMemoryIsNoSlower) {
  constexpr double kTolerance = 0.005;
  std::mt19937 random(13);
  for (int i = 0; i < Cases(8); ++i) {
    for (const std::string_view name : {"zb-auto", "v-auto"}) {
      ScheduleParams params = RandomTimes(random);
      double shortest = kNever;
      for (double limit = 1; limit <= params.ranks + 1; limit += 1) {
        params.memory_limit = limit;
        const double makespan = FiguresOf(name, params).makespan;
        EXPECT_LE(makespan, shortest * (1 + kTolerance)) << fmt::format(
            "{} p={} m={} I={} W={} comm={} limit={}", name, params.ranks, params.microbatches,
            params.backward_input, params.backward_weight, params.comm, limit);
        shortest = std::min(shortest, makespan);
      }
    }
  }
}

TEST(AlgorithmFigures, SearchesAreDeterministic) {
  ScheduleParams params = {
      .ranks = 4, .microbatches = 12, .backward_input = 1.3, .memory_limit = 3};
  for (const std::string_view name : {"zb-auto", "v-auto"}) {
    EXPECT_EQ(Generate(name, params)->lanes, Generate(name, params)->lanes);
  }
}

TEST(AlgorithmFigures, SequenceSlicesOnAVeeStayWithinTheirMemory) {
  for (int ranks = 1; ranks <= 6; ++ranks) {
    for (int slices = 1; slices <= 4; ++slices) {
      for (const int microbatches : {1, 2, 5, 9}) {
        for (const bool split : {false, true}) {
          ScheduleParams params = {.ranks = ranks,
                                   .chunks = 2,
                                   .microbatches = microbatches,
                                   .slices = slices,
                                   .split = split};
          const Figures figures = FiguresOf("seq1f1b", params);
          EXPECT_LE(figures.peak_memory, (ranks + slices - 1.0) / slices + 1e-9);
        }
      }
    }
  }
}

TEST(AlgorithmFigures, SchedulesWithoutAFlushStepAsTheirPolicySays) {
  ScheduleParams params = {.ranks = 3, .microbatches = 4, .steps = 2};
  const auto every = Generate("pipedream", params);
  const auto batch = Generate("pipedream-2bw", params);
  ASSERT_TRUE(every && batch);
  EXPECT_EQ(every->weights, WeightPolicy::kStashed);
  EXPECT_EQ(batch->weights, WeightPolicy::kDoubleBuffered);
  EXPECT_EQ(every->action_count(), 3U * (2 * 8 + 8));
  EXPECT_EQ(batch->action_count(), 3U * (2 * 8 + 2));
  EXPECT_EQ(FirstFault(*every), "");
  EXPECT_EQ(FirstFault(*batch), "");
}

TEST(AlgorithmFigures, SmallerGroupsTakeLessMemory) {
  for (const int ranks : {2, 4, 5, 8}) {
    for (const int microbatches : {1, 3, 8, 13, 25}) {
      double last = 0;
      for (int group = (ranks + 1) / 2; group <= ranks; ++group) {
        ScheduleParams params = {
            .ranks = ranks, .chunks = 3, .microbatches = microbatches, .group = group};
        const Figures figures = FiguresOf("interleaved-zb", params);
        EXPECT_GE(figures.peak_memory, last - 1e-9) << ranks << " " << microbatches << " " << group;
        last = figures.peak_memory;
      }
    }
  }
}

TEST(AlgorithmFigures, FindsTheNamesOfOtherProjects) {
  const std::pair<const char*, const char*> names[] = {
      {"ScheduleGPipe", "gpipe"},
      {"Schedule1F1B", "1f1b"},
      {"ScheduleInterleaved1F1B", "interleaved"},
      {"ScheduleLoopedBFS", "looped-bfs"},
      {"ScheduleInterleavedZeroBubble", "interleaved-zb"},
      {"ScheduleZBVZeroBubble", "zbv"},
      {"ScheduleDualPipeV", "dualpipev"},
      {"1f1b-interleaved", "interleaved"},
      {"zero-bubble", "zb-h1"},
      {"zero-bubble-heuristic", "zb-auto"},
      {"zb1p", "zb-h1"},
      {"zb2p", "zb-h2"},
      {"zbb", "zb-auto"},
      {"zb", "zb-auto"},
      {"vpp", "interleaved"},
      {"v_auto_schedule", "v-auto"},
      {"v1f1b", "v-1f1b"},
      {"DualPipe", "dualpipe"},
      {"zbv_formatted", "zbv-formatted"},
  };
  for (const auto& [theirs, ours] : names) {
    const auto algorithm = FindAlgorithm(theirs);
    ASSERT_TRUE(algorithm) << theirs;
    EXPECT_EQ((*algorithm)->name, ours);
  }
}

TEST(AlgorithmFigures, RefusalsSayWhatIsAccepted) {
  const auto refused = [](std::string_view name, const ScheduleParams& params,
                          std::string_view word) {
    EXPECT_TRUE(Refused(Generate(name, params), word, ErrorCode::kInvalidArgument)) << name;
  };
  const auto with = [](ScheduleParams params, auto set) {
    set(params);
    return params;
  };
  refused("dualpipe", Sized(3, 8), "even");
  refused("dualpipe", Sized(4, 9), "even");
  refused("dualpipe", Sized(4, 6), "at least 2 per rank");
  refused("dualpipev", Sized(4, 7), "at least 2 per rank");
  refused("chimera", Sized(3, 8), "even");
  refused("chimera", Sized(4, 7), "even");
  refused("zbv-formatted", Sized(4, 6), "at least 2p-1");
  refused("pipedream-2bw", Sized(4, 3), "at least one per rank");
  refused("zb-auto", with(Sized(4, 8), [](auto& p) { p.memory_limit = 0.5; }), "memory_limit ");
  refused("v-auto", with(Sized(4, 8), [](auto& p) { p.memory_limit = 0.9; }), "memory_limit ");
  refused("interleaved-zb", with(Sized(8, 8), [](auto& p) { p.group = 3; }), "group ");
  refused("interleaved", with(Sized(8, 8), [](auto& p) { p.group = 3; }), "group ");
  refused("interleaved", with(Sized(8, 8), [](auto& p) { p.group = -1; }), "group ");
  refused("hanayo", with(Sized(4, 8), [](auto& p) { p.chunks = 3; }), "chunks ");
  refused("hanayo", with(Sized(4, 8), [](auto& p) { p.chunks = 4, p.waves = 3; }), "waves ");
  refused("hanayo", with(Sized(4, 8), [](auto& p) { p.waves = -2; }), "waves ");
  refused("hanayo", with(Sized(4, 8), [](auto& p) { p.waves = 2000000000; }), "waves ");
  refused("hanayo", with(Sized(4, 8), [](auto& p) { p.memory_limit = 0.9; }), "memory_limit ");
  refused("seq1f1b", with(Sized(4, 8), [](auto& p) { p.chunks = 3; }), "chunks ");
}

}  // namespace
}  // namespace penstock::testing
