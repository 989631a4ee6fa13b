// Seeds torch's generator before each test, so that a test draws the same numbers whichever tests
// ran before it.
#include <ATen/Context.h>
#include <gtest/gtest.h>

namespace penstock::testing {
namespace {

class SeedEachTest : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo&) override { at::manual_seed(1); }
};

[[maybe_unused]] const bool kInstalled = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new SeedEachTest);  // owns it
  return true;
}();

}  // namespace
}  // namespace penstock::testing
