// What training keeps of each parameter, as the ZeRO paper (Rajbhandari et al. 2020) counts it,
// with gradients in fp32.
#include "model_spec/state_bytes.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

StateBytes StatesOfAdamW(double parameters, double working, const Sharding& sharding) {
  return StatesOf(ElementsOf(parameters, sharding), AdamWFormat(working));
}

TEST(StateBytes, AreThoseOfMixedPrecision) {
  const StateBytes states = StatesOfAdamW(10, 2, {});
  EXPECT_EQ(states.weights, 10 * (2 + 4));
  EXPECT_EQ(states.version, 10 * 2);
  EXPECT_EQ(states.gradients, 10 * 4);
  EXPECT_EQ(states.optimizer, 10 * 8);
}

TEST(StateBytes, InFp32HaveNoMasters) {
  const StateBytes states = StatesOfAdamW(10, 4, {});
  EXPECT_EQ(states.weights, 10 * 4);
  EXPECT_EQ(states.total(), 10 * 16);
}

TEST(StateBytes, AreDividedFromTheirStageOfZeroOn) {
  const double masters[] = {40, 10, 10, 10}, working[] = {20, 20, 20, 5};
  const double gradients[] = {40, 40, 10, 10}, optimizer[] = {80, 20, 20, 20};
  for (int zero = 0; zero <= 3; ++zero) {
    const StateBytes states = StatesOfAdamW(10, 2, {zero, 4});
    EXPECT_EQ(states.weights, masters[zero] + working[zero]);
    EXPECT_EQ(states.gradients, gradients[zero]);
    EXPECT_EQ(states.optimizer, optimizer[zero]);
  }
}

TEST(StateBytes, AStepReadsAndWritesWhatItUpdates) {
  const StateElements all = ElementsOf(10, {});
  EXPECT_EQ(StepBytes(all, AdamWFormat(4)), 10 * (4 + 2 * (4 + 8)));
  EXPECT_EQ(StepBytes(all, AdamWFormat(2)), 10 * (4 + 2 * (4 + 8) + 2));
  EXPECT_EQ(StepBytes(ElementsOf(10, {1, 2}), AdamWFormat(4)), 5 * (4 + 2 * (4 + 8)));
}

}  // namespace
}  // namespace penstock
