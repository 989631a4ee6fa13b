#include "train/data/bigram.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace penstock {
namespace {

TEST(Bigram, IsADistributionAfterEveryByte) {
  std::mt19937 random(1);
  std::vector<std::uint8_t> text(500);
  for (auto& byte : text) byte = static_cast<std::uint8_t>(random() % 7 * 31);
  const Bigram bigram(text);
  for (int a = 0; a < 256; ++a) {
    double sum = 0;
    for (int b = 0; b < 256; ++b) {
      const double nats = bigram.Nats(static_cast<std::uint8_t>(a), static_cast<std::uint8_t>(b));
      ASSERT_TRUE(std::isfinite(nats));
      sum += std::exp(-nats);
    }
    EXPECT_NEAR(sum, 1, 1e-12);
  }
}

TEST(Bigram, FindsTheEntropyOfAMarkovChain) {
  // Each of two letters is followed by the other one with probability 3/4.
  std::mt19937 random(2);
  const auto chain = [&random](std::size_t length) {
    std::vector<std::uint8_t> text(length, 'a');
    for (std::size_t i = 1; i < length; ++i) {
      const bool turn = random() % 4 != 0;
      text[i] = static_cast<std::uint8_t>(turn ? 'a' + 'b' - text[i - 1] : text[i - 1]);
    }
    return text;
  };
  const Bigram bigram(chain(200000));
  const double entropy = -0.75 * std::log(0.75) - 0.25 * std::log(0.25);
  EXPECT_NEAR(bigram.MeanNats(chain(200000)), entropy, 0.01);
  EXPECT_EQ(bigram.MeanNats(chain(1)), 0);
}

}  // namespace
}  // namespace penstock
