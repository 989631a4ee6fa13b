// The pool gives back what it was given, whatever the order, and counts what is held meanwhile.
#include "train/stage/activation_pool.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace penstock {
namespace {

struct Row {
  std::vector<at::Tensor> held, copies;
  ActivationPool::Parcel parcel;

  explicit Row(std::int64_t seed) {
    at::Tensor turned = at::randn({5, 7 + seed}).t().contiguous().t();
    held = {at::randn({3, 4}), at::Tensor(), std::move(turned),
            at::randn({2, 2}).to(at::kBFloat16)};
    for (const at::Tensor& tensor : held) {
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
  void ExpectWhole() const {
    for (std::size_t i = 0; i < held.size(); ++i) {
      ASSERT_EQ(held[i].defined(), copies[i].defined());
      if (!held[i].defined()) continue;
      EXPECT_TRUE(at::equal(held[i], copies[i]));
      EXPECT_EQ(held[i].strides(), copies[i].strides());
    }
  }
};

std::unique_ptr<ActivationPool> MakePool() {
  return ActivationPool::Make(std::filesystem::temp_directory_path()).value();
}

TEST(ActivationPool, BringsBackWhatItTook) {
  std::atomic<std::int64_t> away = 0;
  std::vector<std::unique_ptr<Row>> rows;
  const auto pool = MakePool();
  for (int i = 0; i < 20; ++i) rows.push_back(std::make_unique<Row>(i));
  for (int step = 0; step < 3; ++step) {
    for (const auto& row : rows) pool->Offload(row->held, away, row->parcel);
    for (const auto& row : rows) EXPECT_FALSE(row->held[0].defined());
    for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
      pool->Reload((*row)->parcel);
      pool->Await((*row)->held, (*row)->parcel);
      (*row)->ExpectWhole();
    }
    EXPECT_EQ(away, 0);
  }
}

TEST(ActivationPool, CountsWhatIsAway) {
  std::atomic<std::int64_t> away = 0;
  Row first(0), second(1);
  const auto pool = MakePool();
  pool->Offload(first.held, away, first.parcel);
  pool->Offload(second.held, away, second.parcel);
  pool->Reload(second.parcel);  // behind its leaving, which is behind the first one's
  pool->Await(second.held, second.parcel);
  EXPECT_EQ(away, first.bytes());
  pool->Reload(first.parcel);
  pool->Await(first.held, first.parcel);
  EXPECT_EQ(away, 0);
}

TEST(ActivationPool, DropsWhatIsAwayOrOnItsWay) {
  std::atomic<std::int64_t> away = 0;
  Row left(0), returning(1);
  const auto pool = MakePool();
  pool->Offload(left.held, away, left.parcel);
  pool->Offload(returning.held, away, returning.parcel);
  pool->Reload(returning.parcel);
  pool->Drop(left.parcel);
  pool->Drop(returning.parcel);
  EXPECT_EQ(away, 0);
  EXPECT_TRUE(left.parcel.empty());
  EXPECT_TRUE(returning.parcel.empty());
}

TEST(ActivationPool, EndsWithParcelsAway) {
  std::atomic<std::int64_t> away = 0;
  Row row(0);
  const auto pool = MakePool();
  pool->Offload(row.held, away, row.parcel);
  pool->Reload(row.parcel);
}

TEST(ActivationPool, NamesAFolderThatIsNone) {
  const auto pool = ActivationPool::Make("/no/such/folder");
  ASSERT_FALSE(pool);
  EXPECT_NE(pool.error().message.find("/no/such/folder"), std::string::npos);
}

}  // namespace
}  // namespace penstock
