// Sums, the amount of data that collectives send, and emulated links.
#include <gtest/gtest.h>

#include <limits>

#include "base/index.h"
#include "collective/element_sum.h"
#include "collective/exchange.h"
#include "collective/local_group.h"
#include "tests/engine/collective/collective_reference.h"
#include "tests/results.h"

namespace penstock {
namespace {

TEST(SumInOrder, RoundsBfloat16OnceToNearestEven) {
  const auto sum = [](const std::vector<std::uint16_t>& elements) {
    std::vector<ByteVector> inputs;
    std::vector<ConstBytes> parts;
    for (const std::uint16_t element : elements) {
      inputs.emplace_back(2);
      SetElementAt(inputs.back(), 0, element);
    }
    for (const ByteVector& input : inputs) parts.emplace_back(input);
    ByteVector result(2);
    SumInOrder(parts, result, ElementType::kBfloat16);
    return ElementAt<std::uint16_t>(result, 0);
  };
  constexpr std::uint16_t kOne = 0x3f80;       // the next number is 1 + 1/128
  constexpr std::uint16_t kHalfStep = 0x3b80;  // 1/256
  constexpr std::uint16_t kInfinity = 0x7f80;
  constexpr std::uint16_t kLargest = 0x7f7f;
  EXPECT_EQ(sum({kOne, kHalfStep}), kOne);
  EXPECT_EQ(sum({kOne + 1, kHalfStep}), kOne + 2);
  EXPECT_EQ(sum({kOne, kHalfStep, kHalfStep}), kOne + 1);  // rounding each sum would give 1
  EXPECT_EQ(sum({kLargest, kLargest}), kInfinity);
  EXPECT_TRUE(std::isnan(FloatOfBfloat16(sum({kInfinity, 0xff80}))));
  EXPECT_TRUE(std::isnan(FloatOfBfloat16(sum({0x7f81, kOne}))));
}

TEST(SumInOrder, AddsInTheOrderOfTheParts) {
  const auto sum = [](std::vector<float> elements) {
    std::vector<ConstBytes> parts;
    for (float& element : elements) parts.push_back(std::as_bytes(std::span(&element, 1)));
    ByteVector result(sizeof(float));
    SumInOrder(parts, result, ElementType::kFloat32);
    return ElementAt<float>(result, 0);
  };
  EXPECT_EQ(sum({1e8F, -1e8F, 1}), 1);
  EXPECT_EQ(sum({1, 1e8F, -1e8F}), 0);
}

TEST(SumInOrder, Int64WrapsAround) {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const std::int64_t one = 1;
  ByteVector result(8);
  SumInOrder({std::as_bytes(std::span(&most, 1)), std::as_bytes(std::span(&one, 1))}, result,
             ElementType::kInt64);
  EXPECT_EQ(ElementAt<std::int64_t>(result, 0), std::numeric_limits<std::int64_t>::min());
}

std::size_t BytesSent(const CollectiveCall& call, int rank, int ranks) {
  std::size_t bytes = 0;
  for (const Exchange& exchange : ExchangesOf(call, rank, ranks)) {
    for (int peer = 0; peer < ranks; ++peer) {
      const Exchange::Peer& with = exchange.peers[Index(peer)];
      if (peer != rank && with.exchanges) bytes += with.send.size();
    }
  }
  return bytes;
}

TEST(ExchangesOf, SendNoMoreThanTheShareOfTheOtherRanks) {
  constexpr std::size_t kBytes = 4 * 120;
  ByteVector whole(kBytes);
  ByteVector result(kBytes);
  for (const int ranks : {1, 2, 3, 5, 8}) {
    const std::size_t count = Index(ranks);
    const std::size_t most = kBytes * (count - 1) / count;
    const Bytes block(result.data(), kBytes / count);
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(BytesSent({CollectiveKind::kAllGather, block, whole}, rank, ranks), most);
      EXPECT_EQ(BytesSent({CollectiveKind::kReduceScatter, whole, block}, rank, ranks), most);
      EXPECT_EQ(BytesSent({CollectiveKind::kAllReduce, whole, result}, rank, ranks), 2 * most);
    }
  }
}

// Their sizes are the same, so only what they are tells them apart.
TEST(MakeLocalGroup, DifferentCollectivesEndAllRanksWithBothNames) {
  const auto ends = MakeLocalGroup(2);
  const ByteVector input(48);
  ByteVector first(48), second(48);
  const auto floats = ends[0]->AllReduce(input, first, ElementType::kFloat32).value();
  const auto integers = ends[1]->AllReduce(input, second, ElementType::kInt64);
  const Status ended = integers ? ends[1]->Wait(*integers) : tl::unexpected(integers.error());
  ASSERT_FALSE(ended);
  EXPECT_TRUE(Contains(ended.error().line(), "all-reduce of float32"));
  EXPECT_TRUE(Contains(ended.error().line(), "all-reduce of int64"));
  EXPECT_TRUE(Contains(ended.error().line(), "all ranks must call the same collectives"));
  EXPECT_FALSE(ends[0]->Wait(floats));
}

// Three pieces of 48 bytes at 4800 bytes per second arrive one after another.
TEST(MakeLocalGroup, DataTakesTheTimeOfItsLink) {
  const auto start = std::chrono::steady_clock::now();
  const auto ends = MakeLocalGroup(1, {}, LinkSpeed{0.005, 4800});
  const ByteVector input(48);
  std::vector<ByteVector> outputs(3, ByteVector(48));
  std::vector<RankGroup::Ticket> tickets;
  for (ByteVector& output : outputs) {
    tickets.push_back(ends[0]->AllToAll(input, output).value());
  }
  for (const int i : {2, 1, 0}) EXPECT_TRUE(ends[0]->Wait(tickets[Index(i)]));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(took.count(), 0.035);
}

}  // namespace
}  // namespace penstock
