// Runs with data.document_mask.
#include "tests/engine/train/documents.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "graph/ir/graph_tools.h"
#include "tests/engine/train/run/processes_run.h"
#include "tests/results.h"
#include "train/compiled/compile_stages.h"
#include "train/data/run_tokenizer.h"

namespace penstock {
namespace {

class Documents : public ProcessesRun {
 protected:
  Documents() { text_ = folder_.Write("fortunes", DistinctDocuments(400, 40)); }
};

// Stages on other processes receive the borders of documents in messages.
TEST_F(Documents, ProcessesAndInterruptionsChangeNoBits) {
  for (const std::string model : {"llama", "gpt2"}) {
    ExpectProcessesAndInterruptionsChangeNoBits({"model.name=" + model, "document_mask=true"});
  }
}

TEST_F(Documents, TheHeldOutLossHasTheMaskToo) {
  const auto masked = ValueOf(RunAlone({"document_mask=true", "name=masked"}));
  EXPECT_EQ(Evaluate(Folder("masked"))->held_out_loss, masked.held_out_loss);
  const auto plain = RunAlone({"name=plain"});
  EXPECT_NE(plain->held_out_loss, masked.held_out_loss);
  EXPECT_NE(Collect("plain").metrics, Collect("masked").metrics);
}

TEST_F(Documents, InexactProgramsDifferOnlyByRounding) {
  const auto exact = RunAlone({"document_mask=true", "sequence=64"});
  ASSERT_TRUE(exact) << exact.error().line();
  const auto inexact =
      ValueOf(RunAlone({"document_mask=true", "sequence=64", "exact=false", "name=inexact"}));
  EXPECT_NEAR(inexact.held_out_loss, exact->held_out_loss, 1e-4);
}

TEST_F(Documents, TheBackwardComputesTheMaskAgain) {
  TrainConfig config = Config({"document_mask=true", "ranks=2", "stages=2"});
  ASSERT_TRUE(SetDocumentEnd(config));
  for (const int stage : {0, 1}) {
    const StageGraphs graphs = GraphsOfStage(config, stage, {}).value();
    const std::vector<std::int64_t> mask = {1, 1, 16, 16};
    for (const ValueId saved : graphs.saved) {
      EXPECT_NE(graphs.forward.value(saved).type.sizes, mask) << "stage " << stage;
    }
    const auto has_mask = [](const Graph& piece) {
      return std::ranges::any_of(
          piece.nodes, [](const Node& node) { return IsOp(node, "penstock::document_mask"); });
    };
    EXPECT_TRUE(has_mask(graphs.backward_input) || has_mask(graphs.backward_weight));
  }
}

TEST_F(Documents, NeedWholeSequencesAndATokenThatEndsThem) {
  EXPECT_EQ(LineOf(RunAlone({"document_mask=true", "schedule=seq1f1b", "slices=2"})),
            "data.document_mask: needs whole sequences, not the 2 slices of pipeline.slices");
  folder_.Write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})");
  TrainConfig config = Config({"document_mask=true", "data.tokenizer=" + folder_.path()});
  EXPECT_EQ(LineOf(SetDocumentEnd(config)),
            "data.document_mask: the tokenizer " + (folder_ / "tokenizer.json") +
                " has no token that ends documents; name its eos_token in a tokenizer_config.json "
                "next to it");
}

}  // namespace
}  // namespace penstock
