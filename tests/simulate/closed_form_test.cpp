// Closed forms of the four schedules without split backwards, met exactly.
#include <gtest/gtest.h>

#include <algorithm>

#include "schedule/catalog.h"
#include "schedule/passes/passes.h"
#include "simulate/simulate.h"

namespace penstock {
namespace {

struct Times {
  double forward, backward_input, backward_weight;
  double all() const { return forward + backward_input + backward_weight; }
};

// Multiples of a chunk count up to 4, so that a chunk's share is a whole number and sums are exact.
constexpr Times kTimes[] = {{12, 12, 12}, {24, 36, 12}, {60, 12, 0}, {12, 48, 24}};

class ClosedForm : public testing::Test {
 protected:
  // Simulates the algorithm, alone and lowered, and holds it against the forms.
  void Check(std::string_view name, const ScheduleParams& params, double makespan, double memory) {
    SCOPED_TRACE(
        fmt::format("{} p={} v={} m={}", name, params.ranks, params.chunks, params.microbatches));
    const auto schedule = Generate(name, params);
    ASSERT_TRUE(schedule) << schedule.error().message;
    const Costs costs = Costs::Uniform(schedule->placement, 1, params.forward,
                                       params.backward_input, params.backward_weight);
    const auto result = Simulate(*schedule, costs);
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->makespan, makespan);
    EXPECT_NEAR(result->peak_memory, memory, 1e-9);
    const double busy =
        params.microbatches * (params.forward + params.backward_input + params.backward_weight);
    for (const RankResult& rank : result->ranks) EXPECT_EQ(rank.busy, busy);
    EXPECT_EQ(result->bubble, 1 - busy / makespan);
    const int chunks = std::max(1, params.chunks);
    const int edges = params.ranks > 1 ? params.ranks * chunks - 1 : 0;
    EXPECT_EQ(result->messages,
              static_cast<std::size_t>(2) * static_cast<std::size_t>(edges * params.microbatches));
    ++checked_;
    if (params.microbatches % 3 != 0) return;  // a third is enough for the lowered form
    const auto lowered = Simulate(AddCommunication(*schedule), costs);
    ASSERT_TRUE(lowered) << lowered.error().message;
    EXPECT_EQ(lowered->makespan, makespan);
    EXPECT_EQ(lowered->peak_memory, result->peak_memory);
    EXPECT_EQ(lowered->actions, result->actions);
  }

  static ScheduleParams Params(int ranks, int chunks, int microbatches, const Times& times) {
    ScheduleParams params;
    params.ranks = ranks;
    params.chunks = chunks;
    params.microbatches = microbatches;
    params.forward = times.forward;
    params.backward_input = times.backward_input;
    params.backward_weight = times.backward_weight;
    return params;
  }

  int checked_ = 0;
};

TEST_F(ClosedForm, NaiveGpipeAndOneFOneB) {
  for (int p = 1; p <= 12; ++p) {
    for (int m = 1; m <= 30; ++m) {
      const Times& times = kTimes[(p + m) % std::size(kTimes)];
      const ScheduleParams params = Params(p, 0, m, times);
      Check("naive", params, m * p * times.all(), 1);
      Check("gpipe", params, (m + p - 1) * times.all(), m);
      Check("1f1b", params, (m + p - 1) * times.all(), std::min(m, p));
      if (HasFailure()) return;
    }
  }
  EXPECT_EQ(checked_, 1080);
}

TEST_F(ClosedForm, Interleaved) {
  for (int p = 1; p <= 10; ++p) {
    for (int v = 1; v <= 4; ++v) {
      for (int m = 1; m <= 30; ++m) {
        const Times& times = kTimes[(p + v + m) % std::size(kTimes)];
        const int rounds = std::max(1, m / p);
        const int group = (m + rounds - 1) / rounds;
        const double warm_up = (v - 1) * group + 2 * p - 1;
        const double chunk_times = m < p ? p * v + m - 1 : m * v + p - 1;
        Check("interleaved", Params(p, v, m, times), chunk_times * times.all() / v,
              std::min<double>(warm_up, m * v) / v);
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_EQ(checked_, 1200);
}

TEST_F(ClosedForm, CatalogSaysWhatTheSimulatorFinds) {
  for (const Algorithm& algorithm : Catalog()) {
    if (!algorithm.closed_form) continue;
    for (int p = 1; p <= 8; ++p) {
      for (int m = 1; m <= 24; ++m) {
        ScheduleParams asked;
        asked.ranks = p;
        asked.microbatches = m;
        const auto params = CheckParams(algorithm, asked);
        if (!params) continue;
        SCOPED_TRACE(fmt::format("{} p={} m={}", algorithm.name, p, m));
        const auto schedule = Generate(algorithm.name, *params);
        ASSERT_TRUE(schedule) << schedule.error().message;
        const auto result =
            Simulate(*schedule, Costs::Uniform(schedule->placement, schedule->cuts, 1, 1, 1));
        ASSERT_TRUE(result) << result.error().message;
        const penstock::ClosedForm form = algorithm.closed_form(*params);
        if (form.makespan) {
          EXPECT_NEAR(result->makespan, *form.makespan, 1e-9);
        }
        if (form.peak_memory) {
          EXPECT_NEAR(result->peak_memory, *form.peak_memory, 1e-9);
        }
        if (HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace penstock
