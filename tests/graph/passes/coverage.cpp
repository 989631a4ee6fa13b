// A pass that no test exercises fails the run: each pass of the table must have changed a graph in
// some test of this program.
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <set>
#include <string>

#include "graph/ir/print.h"
#include "graph/passes/observe.h"
#include "graph/passes/passes.h"

namespace penstock::testing {
namespace {

std::string TextOf(StageGraphs& graphs) {
  std::string text;
  for (const Graph* graph : AllGraphs(graphs)) text += PrintGraph(*graph);
  return text;
}

class PassCoverage : public ::testing::Environment {
 public:
  void SetUp() override {
    observe_.emplace([this](std::string_view pass, double, StageGraphs& graphs) {
      std::string text = TextOf(graphs);
      if (!pass.empty() && text != before_) changed_.emplace(pass);
      before_ = std::move(text);
    });
  }

  void TearDown() override {
    observe_.reset();
    const bool all =
        ::testing::GTEST_FLAG(filter) == "*" && std::getenv("GTEST_TOTAL_SHARDS") == nullptr;
    if (!all) return;  // some of the tests exercise some of the passes
    for (const Pass& pass : Passes()) {
      EXPECT_TRUE(changed_.contains(pass.name)) << "no test exercises the pass " << pass.name;
    }
  }

 private:
  std::optional<ObservePasses> observe_;
  std::string before_;
  std::set<std::string, std::less<>> changed_;
};

[[maybe_unused]] const auto* const kCoverage =
    ::testing::AddGlobalTestEnvironment(new PassCoverage);

}  // namespace
}  // namespace penstock::testing
