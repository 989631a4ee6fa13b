// Fails the test program unless every pass of the table has changed a graph in some test.
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <set>
#include <string>

#include "graph/ir/print.h"
#include "graph/passes/pass_observer.h"
#include "graph/passes/passes.h"

namespace penstock::testing {
namespace {

std::string TextOfAll(StageGraphs& graphs) {
  std::string text;
  for (const Graph* graph : AllGraphs(graphs)) text += PrintGraph(*graph);
  return text;
}

class PassCoverage : public ::testing::Environment {
 public:
  void SetUp() override {
    observer_.emplace([this](std::string_view pass, double, StageGraphs& graphs) {
      std::string text = TextOfAll(graphs);
      if (!pass.empty() && text != before_) changed_.emplace(pass);
      before_ = std::move(text);
    });
  }

  void TearDown() override {
    observer_.reset();
    const bool all_tests =
        ::testing::GTEST_FLAG(filter) == "*" && std::getenv("GTEST_TOTAL_SHARDS") == nullptr;
    if (!all_tests) return;
    for (const Pass& pass : Passes()) {
      EXPECT_TRUE(changed_.contains(pass.name)) << "no test exercises the pass " << pass.name;
    }
  }

 private:
  std::optional<ScopedPassObserver> observer_;
  std::string before_;
  std::set<std::string, std::less<>> changed_;
};

[[maybe_unused]] const auto* const kCoverage =
    ::testing::AddGlobalTestEnvironment(new PassCoverage);

}  // namespace
}  // namespace penstock::testing
