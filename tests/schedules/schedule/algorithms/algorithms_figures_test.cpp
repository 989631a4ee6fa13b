// The stated properties of each algorithm, compared with the simulator: memory, figures at p = 8,
// and names. tests/schedules/simulate/closed_form_test.cpp tests closed forms.
#include <gtest/gtest.h>

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
      {"1F1B", "1f1b"},
      {"GPipe", "gpipe"},
      {"LoopedBFS", "looped-bfs"},
      {"Interleaved1F1B", "interleaved"},
      {"InterleavedZeroBubble", "interleaved-zb"},
      {"group-interleaved-1f1b", "interleaved-zb"},
      {"ZBVZeroBubble", "zbv"},
      {"DualPipeV", "dualpipev"},
      {"DualPipe", "dualpipe"},
      {"zbv_formatted", "zbv-formatted"},
  };
  for (const auto& [theirs, ours] : names) {
    const auto algorithm = FindAlgorithm(theirs);
    ASSERT_TRUE(algorithm) << theirs;
    EXPECT_EQ((*algorithm)->name, ours);
  }
}

}  // namespace
}  // namespace penstock::testing
