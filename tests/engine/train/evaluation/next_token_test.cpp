// The next token is drawn from the tokens that temperature, top_k and top_p leave.
#include "train/evaluation/next_token.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>

namespace penstock {
namespace {

constexpr int kDraws = 4000;

// In order of probability: 3, 1, 4, 0, 2.
at::Tensor Logits() { return at::log(at::tensor({0.1F, 0.25F, 0.05F, 0.4F, 0.2F})); }

// `sampling` is temperature, top_k, top_p.
std::map<std::int64_t, double> Shares(const Sampling& sampling) {
  at::Generator generator = at::detail::createCPUGenerator(7);
  std::map<std::int64_t, double> shares;
  for (int i = 0; i < kDraws; ++i) shares[NextToken(Logits(), sampling, generator)] += 1.0 / kDraws;
  return shares;
}

void ExpectShares(const Sampling& sampling, const std::map<std::int64_t, double>& expected) {
  const auto shares = Shares(sampling);
  EXPECT_EQ(shares.size(), expected.size());
  for (const auto& [token, share] : expected) {
    EXPECT_NEAR(shares.contains(token) ? shares.at(token) : 0, share, 0.04) << token;
  }
}

TEST(NextToken, DrawsByProbability) {
  ExpectShares({1, 0, 1}, {{0, 0.1}, {1, 0.25}, {2, 0.05}, {3, 0.4}, {4, 0.2}});
  // At temperature 0.5, probabilities are proportional to their squares: a sum of 0.275.
  ExpectShares({0.5, 0, 1}, {{0, 0.036}, {1, 0.227}, {2, 0.009}, {3, 0.582}, {4, 0.145}});
}

TEST(NextToken, KeepsTheMostLikely) {
  ExpectShares({0, 0, 1}, {{3, 1}});
  ExpectShares({1, 1, 1}, {{3, 1}});
  ExpectShares({1, 2, 1}, {{3, 0.615}, {1, 0.385}});
  ExpectShares({1, 100, 0.3}, {{3, 1}});
  ExpectShares({1, 0, 0.6}, {{3, 0.615}, {1, 0.385}});
  ExpectShares({1, 0, 0.7}, {{3, 0.471}, {1, 0.294}, {4, 0.235}});
  // The first of the two tokens that top_k leaves has 61%.
  ExpectShares({1, 2, 0.6}, {{3, 1}});
}

TEST(NextToken, RefusesLogitsThatAreNotFinite) {
  at::Generator generator = at::detail::createCPUGenerator(7);
  const at::Tensor logits = at::full({4}, std::numeric_limits<float>::quiet_NaN());
  EXPECT_THROW(NextToken(logits, {}, generator), std::runtime_error);
}

}  // namespace
}  // namespace penstock
