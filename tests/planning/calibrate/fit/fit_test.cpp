#include "calibrate/fit/fit.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/results.h"

namespace penstock {
namespace {

// Runs of a model on two kinds of devices, with times that the model gives for these efficiencies
// and bandwidths, off by up to `noise`.
PricedRuns RunsWith(double flops_efficiency, double bandwidth_efficiency, double noise) {
  MeasuredRuns runs;
  for (const char* device : {"h100", "a100"}) {
    for (const int tensor : {1, 2, 4}) {
      for (const int microbatches : {8, 16, 32}) {
        MeasuredRun run;
        run.row = static_cast<int>(runs.runs.size()) + 1;
        Scenario& scenario = run.scenario;
        scenario.model = "llama-3-8b";
        scenario.device = device;
        scenario.nodes = "2x8";
        scenario.tensor = tensor;
        scenario.ranks = 4;
        scenario.microbatches = microbatches;
        scenario.schedules.push_back({Candidate::Kind::kAlgorithm, "1f1b"});
        Scenario real = scenario;
        real.flops_efficiency = flops_efficiency;
        real.bandwidth_efficiency = bandwidth_efficiency;
        const double sign = run.row % 3 - 1;
        run.step_time = EstimateStep(real)->step_time * (1 + sign * noise);
        runs.runs.push_back(std::move(run));
      }
    }
  }
  return PriceRuns(std::move(runs), FixedColumns());
}

std::vector<FitConstant> Constants(const std::vector<std::string>& names,
                                   const std::vector<std::string_view>& per = {}) {
  return *FindConstants(names, per);
}

TEST(Fit, RecoversConstants) {
  const PricedRuns runs = RunsWith(0.45, 0.7, 0);
  ASSERT_EQ(runs.runs.size(), 18u);
  const auto fit = FitConstants(runs, Constants({"flops_efficiency", "bandwidth_efficiency"}));
  ASSERT_TRUE(fit) << fit.error().line();
  ASSERT_EQ(fit->values.size(), 4u);  // two devices
  for (const ConstantValue& value : fit->values) {
    EXPECT_NEAR(value.value, value.field->name == "flops_efficiency" ? 0.45 : 0.7, 1e-3);
    EXPECT_EQ(value.rows, 9u);
  }
  EXPECT_GT(fit->mape_before, 0.1);
  EXPECT_LT(fit->mape, 1e-4);
  EXPECT_LT(*fit->cross_validated, 1e-3);
}

TEST(Fit, StandardErrorsCoverTheTruth) {
  const PricedRuns runs = RunsWith(0.45, 0.8, 0.03);
  const auto fit = FitConstants(runs, Constants({"flops_efficiency"}));
  ASSERT_TRUE(fit);
  for (const ConstantValue& value : fit->values) {
    EXPECT_GT(value.error, 0.001);
    EXPECT_LT(value.error, 0.02);
    EXPECT_NEAR(value.value, 0.45, 3 * value.error);
  }
  EXPECT_GT(*fit->cross_validated, fit->mape);
}

TEST(Fit, DisturbedRowsDoNotMoveIt) {
  PricedRuns runs = RunsWith(0.45, 0.8, 0.01);
  for (const std::size_t row : {2, 7, 12}) {
    runs.runs[row].step_time = *runs.runs[row].step_time * 2;
    runs.predictions[row].measured_step_time = runs.runs[row].step_time;
  }
  const auto fit = FitConstants(runs, Constants({"flops_efficiency"}));
  ASSERT_TRUE(fit);
  for (const ConstantValue& value : fit->values) EXPECT_NEAR(value.value, 0.45, 0.01);
}

// The host's launches matter only from some value on, which the implementation's default has
// passed.
TEST(Fit, StartsAtTheConstantsInEffect) {
  Scenario scenario;
  scenario.model = "llama-3-8b";
  scenario.implementation = "megatron";
  EXPECT_GT(ConstantOf(*FindField("host_launch"), scenario), 10e-6);
  scenario.host_launch = "3us";
  EXPECT_DOUBLE_EQ(ConstantOf(*FindField("host_launch"), scenario), 3e-6);
}

TEST(Fit, AutoChoosesWhatTheRowsDetermine) {
  const PricedRuns runs = RunsWith(0.45, 0.8, 0);
  const auto fit = FitDeterminedConstants(runs, {});
  ASSERT_TRUE(fit) << fit.error().line();
  EXPECT_TRUE(fit->is_kept);
  EXPECT_LT(fit->mape, 0.01);
}

TEST(Fit, RefusesMoreConstantsThanTheRowsDetermine) {
  PricedRuns runs = RunsWith(0.45, 0.8, 0);
  EXPECT_TRUE(
      Refused(FitConstants(runs, Constants({"flops_efficiency"}, {"tensor", "device", "samples"})),
              "18 rows with a time do not determine 18 constants"));
  // Without tensor parallelism there is no communication to hide.
  std::erase_if(runs.runs, [](const MeasuredRun& run) { return *run.scenario.tensor > 1; });
  std::erase_if(runs.predictions,
                [](const Prediction& each) { return (each.row - 1) / 3 % 3 > 0; });
  EXPECT_TRUE(Refused(FitConstants(runs, Constants({"hidden_communication"})),
                      "changes none of their times"));
}

TEST(Fit, RefusesUnknownConstants) {
  EXPECT_TRUE(
      Contains(FindConstants(std::vector<std::string>{"flop_efficiency"}, {}).error().line(),
               "did you mean 'flops_efficiency'?"));
  EXPECT_FALSE(FindConstants(std::vector<std::string>{"microbatches"}, {}));
  EXPECT_TRUE(
      Contains(FindConstants(std::vector<std::string>{"flops-efficiency", "flops_efficiency"}, {})
                   .error()
                   .line(),
               "given twice"));
}

}  // namespace
}  // namespace penstock
