// Closed forms hold exactly: four that are written here, for schedules without split backwards, and
// the catalog's at random sizes and times.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/index.h"
#include "schedule/catalog.h"
#include "schedule/passes/passes.h"
#include "simulate/simulate.h"
#include "tests/cases.h"
#include "tests/results.h"

namespace penstock {
namespace {

struct Times {
  double forward, backward_input, backward_weight;
  double all() const { return forward + backward_input + backward_weight; }
};

// Multiples of all chunk counts up to 4, so that the share of a chunk is a whole number and sums
// are exact.
constexpr Times kTimes[] = {{12, 12, 12}, {24, 36, 12}, {60, 12, 0}, {12, 48, 24}};

class ClosedForm : public ::testing::Test {
 protected:
  // Simulates the algorithm, as generated and lowered, and compares it with the forms.
  void Check(std::string_view name, const ScheduleParams& params, double makespan, double memory) {
    SCOPED_TRACE(
        fmt::format("{} p={} v={} m={}", name, params.ranks, params.chunks, params.microbatches));
    const auto schedule = ValueOf(Generate(name, params));
    const Costs costs = Costs::Uniform(schedule.placement, 1, params.forward, params.backward_input,
                                       params.backward_weight);
    const auto result = ValueOf(Simulate(schedule, costs));
    EXPECT_EQ(result.makespan, makespan);
    EXPECT_NEAR(result.peak_memory, memory, 1e-9);
    const double busy =
        params.microbatches * (params.forward + params.backward_input + params.backward_weight);
    for (const RankResult& rank : result.ranks) EXPECT_EQ(rank.busy, busy);
    EXPECT_EQ(result.bubble, 1 - busy / makespan);
    const int chunks = std::max(1, params.chunks);
    const int edges = params.ranks > 1 ? params.ranks * chunks - 1 : 0;
    EXPECT_EQ(result.messages, Index(2) * Index(edges * params.microbatches));
    ++checked_;
    if (params.microbatches % 3 != 0)
      return;  // a third of the cases is enough for the lowered form
    const auto lowered = ValueOf(Simulate(AddCommunication(schedule), costs));
    EXPECT_EQ(lowered.makespan, makespan);
    EXPECT_EQ(lowered.peak_memory, result.peak_memory);
    EXPECT_EQ(lowered.actions, result.actions);
  }

  static ScheduleParams Params(int ranks, int chunks, int microbatches, const Times& times) {
    return {.ranks = ranks,
            .chunks = chunks,
            .microbatches = microbatches,
            .forward = times.forward,
            .backward_input = times.backward_input,
            .backward_weight = times.backward_weight};
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

// The number of cases per algorithm and their largest size: fewer if it searches for its order.
struct Extent {
  std::string_view name;
  int cases, most_ranks, most_microbatches;
};
constexpr Extent kFull = {"", 400, 12, 40};
constexpr Extent kSearched[] = {{"zb-auto", 30, 4, 8},  {"v-auto", 30, 4, 8},
                                {"v-1f1b", 60, 6, 12},  {"zbv", 60, 6, 12},
                                {"v-half", 50, 12, 16}, {"v-min", 50, 12, 16}};

const Extent& ExtentOf(const Algorithm& algorithm) {
  const Extent* found =
      std::find_if(std::begin(kSearched), std::end(kSearched),
                   [&](const Extent& extent) { return extent.name == algorithm.name; });
  return found == std::end(kSearched) ? kFull : *found;
}

// Draws parameters of every kind that the algorithm may or may not accept.
ScheduleParams DrawParams(const Algorithm& algorithm, std::mt19937& random) {
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  const SupportedParameters& supported = algorithm.supported;
  ScheduleParams params = {.ranks = draw(1, ExtentOf(algorithm).most_ranks),
                           .microbatches = draw(1, ExtentOf(algorithm).most_microbatches)};
  if (draw(0, 1) == 1)
    params.chunks = draw(supported.min_chunks, std::min(supported.max_chunks, 5));
  if (supported.group && draw(0, 2) == 0) params.group = draw(1, 14);
  if (supported.slices) params.slices = draw(1, 4);
  if (supported.steps) params.steps = draw(1, 3);
  if (supported.waves && draw(0, 1) == 1) params.waves = draw(1, 3);
  if (supported.split) params.split = draw(0, 1) == 1;
  const int times = draw(0, 3);  // half of them with F = I = W
  const auto time = [&] { return static_cast<double>(draw(1, 5)); };
  if (times == 0) params.backward_weight = params.backward_input = params.forward = time();
  if (times == 1) params.backward_input = 1 + params.backward_weight;
  if (times == 2) {
    params.forward = time();
    params.backward_input = time();
    params.backward_weight = time();
  }
  if (draw(0, 2) == 0) params.comm = 0.25 * draw(1, 8);
  const int pair = draw(0, 2);
  if (pair == 1) params.overlap.kind = OverlapRule::Kind::kSum;
  if (pair == 2) params.overlap = {OverlapRule::Kind::kFactor, 0.1 * draw(5, 11)};
  return params;
}

void ExpectForm(const penstock::ClosedForm& form, const SimulationResult& result) {
  constexpr double kRounding = 1e-9;
  if (form.makespan) {
    EXPECT_NEAR(result.makespan, *form.makespan, kRounding * *form.makespan);
    ASSERT_TRUE(form.bubble);
    EXPECT_NEAR(result.bubble, *form.bubble, kRounding);
  }
  if (form.peak_memory) {
    EXPECT_NEAR(result.peak_memory, *form.peak_memory, kRounding);
  }
  ASSERT_TRUE(form.messages);
  EXPECT_EQ(static_cast<std::int64_t>(result.messages), *form.messages);
}

TEST_F(ClosedForm, CatalogAgreesWithTheSimulator) {
  std::mt19937 random(23);
  int makespans = 0, peaks = 0;
  for (const Algorithm& algorithm : Catalog()) {
    for (int left = testing::Cases(ExtentOf(algorithm).cases), tries = 0; left > 0; ++tries) {
      ASSERT_LT(tries, 20000) << algorithm.name << " accepts hardly any of the sizes drawn";
      const auto params = CheckParams(algorithm, DrawParams(algorithm, random));
      if (!params) continue;
      --left;
      SCOPED_TRACE(fmt::format(
          "{} p={} v={} m={} group={} slices={} split={} times {},{},{} comm {} overlap "
          "{}",
          algorithm.name, params->ranks, params->chunks, params->microbatches, params->group,
          params->slices, params->split, params->forward, params->backward_input,
          params->backward_weight, params->comm, params->overlap.Price(1, 2)));
      const auto schedule = ValueOf(Generate(algorithm.name, *params));
      Costs costs = Costs::Uniform(schedule.placement, schedule.slices, params->forward,
                                   params->backward_input, params->backward_weight, params->comm);
      costs.overlap = params->overlap;
      const auto result = ValueOf(Simulate(schedule, costs));
      const penstock::ClosedForm form = ClosedFormOf(algorithm, *params);
      ExpectForm(form, result);
      makespans += form.makespan ? 1 : 0;
      peaks += form.peak_memory ? 1 : 0;
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(makespans, testing::Cases(2000));
  EXPECT_GT(peaks, testing::Cases(4500));
}

TEST(ClosedFormOf, KnowsOnlyTheMessagesIfStagesDiffer) {
  for (const Algorithm& algorithm : Catalog()) {
    auto params = ValueOf(CheckParams(algorithm, {.microbatches = 8}));
    const auto messages = ClosedFormOf(algorithm, params).messages;
    params.costs = Costs{};
    const penstock::ClosedForm form = ClosedFormOf(algorithm, params);
    EXPECT_FALSE(form.makespan || form.bubble || form.peak_memory) << algorithm.name;
    EXPECT_EQ(form.messages, messages) << algorithm.name;
  }
}

}  // namespace
}  // namespace penstock
