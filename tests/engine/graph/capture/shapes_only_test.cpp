// Capture under ShapesOnly produces the same graphs.
#include "graph/capture/shapes_only.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "graph/ir/print.h"
#include "graph/passes/passes.h"
#include "tests/engine/graph/small_stage.h"
#include "tests/results.h"

namespace penstock::testing {
namespace {

std::string TextOf(StageGraphs graphs) {
  std::string text;
  for (const Graph* graph : AllGraphs(graphs)) text += PrintGraph(*graph);
  return text;
}

TEST(ShapesOnly, CapturesTheSameGraphs) {
  for (StageSpec (*make)() : {FirstStage, MiddleStage, LastStage, WholeModel}) {
    const std::string real = TextOf(Build(make()).value());
    const ShapesOnly shapes;
    const auto graphs = ValueOf(Build(make()));
    EXPECT_EQ(TextOf(graphs), real);
  }
}

TEST(ShapesOnly, AllocatesNoMemory) {
  const ShapesOnly shapes;
  const at::Tensor huge = at::empty({1 << 20, 1 << 20});  // 4 TiB
  const at::Tensor product = huge.mm(huge.t()).add_(1).narrow(1, 5, 7);
  EXPECT_EQ(product.sizes(), at::IntArrayRef({1 << 20, 7}));
  EXPECT_EQ(product.strides(), at::IntArrayRef({1 << 20, 1}));
  EXPECT_EQ(product.storage().data(), nullptr);
  EXPECT_TRUE(product.is_cpu());
}

TEST(ShapesOnly, RejectsReadingData) {
  const ShapesOnly shapes;
  EXPECT_THROW(at::empty({}).item<float>(), c10::Error);
}

TEST(ShapesOnly, EndsWithItsScope) {
  { const ShapesOnly shapes; }
  EXPECT_NE(at::empty({4}).const_data_ptr(), nullptr);
}

}  // namespace
}  // namespace penstock::testing
