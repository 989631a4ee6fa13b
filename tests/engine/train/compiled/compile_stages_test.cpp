// The graphs, memory and FLOPs of a stage that is too large for this machine.
#include "train/compiled/compile_stages.h"

#include <gtest/gtest.h>

#include "graph/capture/shapes_only.h"
#include "graph/ir/flops.h"
#include "tests/results.h"

namespace penstock {
namespace {

TEST(GraphsOfStage, CountsAStageOfSeventyBillionParameters) {
  const auto config = ValueOf(ParseTrainConfig(R"(
model: {vocabulary: 32000, dim: 8192, layers: 80, heads: 64, kv_heads: 8, hidden: 28672, sequence: 4096}
pipeline: {ranks: 16, chunks: 1, schedule: 1f1b}
batch: 1
)",
                                               "70b.yaml"));
  const ShapesOnly shapes;
  const auto graphs = ValueOf(GraphsOfStage(config, 3, {}));

  constexpr std::int64_t kTokens = 4096, kDim = 8192, kKeys = 1024, kHidden = 28672, kLayers = 5;
  constexpr std::int64_t kMatrices = 2 * kDim * kDim + 2 * kDim * kKeys + 3 * kDim * kHidden;
  std::int64_t bytes = 0;
  for (const Bound& parameter : graphs.joint.parameters) {
    bytes += BytesOf(graphs.joint.graph.value(parameter.value).type);
  }
  EXPECT_EQ(bytes, kLayers * (kMatrices + 2 * kDim) * 4);
  constexpr std::int64_t kAttention = 2 * 2 * kTokens * kTokens * kDim;
  EXPECT_EQ(FlopsOf(graphs.forward).value(), kLayers * (2 * kTokens * kMatrices + kAttention));
  EXPECT_EQ(FlopsOf(graphs.backward_weight).value(), kLayers * 2 * kTokens * kMatrices);
  EXPECT_GT(MakeStageProgram(graphs).saved_bytes, std::int64_t{10} << 30);
}

TEST(CompileStages, RefusesAScheduleThatUpdatesAfterEveryMicrobatch) {
  const auto config = ValueOf(ParseTrainConfig(
      "pipeline: {ranks: 2, schedule: pipedream}\nsteps: 4\nmodel: {layers: 2}", "c.yaml"));
  EXPECT_TRUE(Refused(CompileStages(config, "unused"), "updates after every microbatch"));
}

}  // namespace
}  // namespace penstock
