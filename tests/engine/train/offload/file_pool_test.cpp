// The pool reloads offloaded tensors in any order and counts the offloaded bytes.
#include "train/offload/file_pool.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/results.h"

namespace penstock {
namespace {

struct Saved {
  std::vector<at::Tensor> slots, copies;
  ActivationPool::Transfer transfer;

  explicit Saved(std::int64_t seed) {
    at::Tensor turned = at::randn({5, 7 + seed}).t().contiguous().t();
    slots = {at::randn({3, 4}), at::Tensor(), std::move(turned),
             at::randn({2, 2}).to(at::kBFloat16)};
    for (const at::Tensor& tensor : slots) {
      copies.push_back(tensor.defined() ? tensor.clone() : tensor);
    }
  }
  std::int64_t bytes() const {
    std::int64_t bytes = 0;
    for (const at::Tensor& copy : copies) {
      if (copy.defined()) bytes += static_cast<std::int64_t>(copy.nbytes());
    }
    return bytes;
  }
  void ExpectUnchanged() const {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      ASSERT_EQ(slots[i].defined(), copies[i].defined());
      if (!slots[i].defined()) continue;
      EXPECT_TRUE(at::equal(slots[i], copies[i]));
      EXPECT_EQ(slots[i].strides(), copies[i].strides());
    }
  }
};

std::unique_ptr<FilePool> MakePool() {
  return FilePool::Make(std::filesystem::temp_directory_path()).value();
}

TEST(FilePool, ReloadsWhatItOffloaded) {
  std::atomic<std::int64_t> offloaded = 0;
  std::vector<std::unique_ptr<Saved>> all;
  const auto pool = MakePool();
  for (int i = 0; i < 20; ++i) all.push_back(std::make_unique<Saved>(i));
  for (int step = 0; step < 3; ++step) {
    for (const auto& one : all) pool->Offload(one->slots, offloaded, one->transfer);
    for (const auto& one : all) EXPECT_FALSE(one->slots[0].defined());
    for (auto one = all.rbegin(); one != all.rend(); ++one) {
      pool->Reload((*one)->transfer);
      pool->Await((*one)->slots, (*one)->transfer);
      (*one)->ExpectUnchanged();
    }
    EXPECT_EQ(offloaded, 0);
  }
}

TEST(FilePool, CountsOffloadedBytes) {
  std::atomic<std::int64_t> offloaded = 0;
  Saved first(0), second(1);
  const auto pool = MakePool();
  pool->Offload(first.slots, offloaded, first.transfer);
  pool->Offload(second.slots, offloaded, second.transfer);
  pool->Reload(second.transfer);  // runs after its own offload, which runs after the first one
  pool->Await(second.slots, second.transfer);
  EXPECT_EQ(offloaded, first.bytes());
  pool->Reload(first.transfer);
  pool->Await(first.slots, first.transfer);
  EXPECT_EQ(offloaded, 0);
}

TEST(FilePool, DropsOffloadedAndInFlightTransfers) {
  std::atomic<std::int64_t> offloaded = 0;
  Saved left(0), returning(1);
  const auto pool = MakePool();
  pool->Offload(left.slots, offloaded, left.transfer);
  pool->Offload(returning.slots, offloaded, returning.transfer);
  pool->Reload(returning.transfer);
  pool->Drop(left.transfer);
  pool->Drop(returning.transfer);
  EXPECT_EQ(offloaded, 0);
  EXPECT_TRUE(left.transfer.empty());
  EXPECT_TRUE(returning.transfer.empty());
}

TEST(FilePool, EndsWithTransfersInFlight) {
  std::atomic<std::int64_t> offloaded = 0;
  Saved one(0);
  const auto pool = MakePool();
  pool->Offload(one.slots, offloaded, one.transfer);
  pool->Reload(one.transfer);
}

TEST(FilePool, NamesAMissingFolder) {
  EXPECT_TRUE(Refused(FilePool::Make("/no/such/folder"), "/no/such/folder"));
}

}  // namespace
}  // namespace penstock
