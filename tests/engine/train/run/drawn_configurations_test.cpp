// Property: ranks that divide a model train it as ranks do that have all of it, whatever else the
// configuration says, and with the same bits each time.
//
// PENSTOCK_DRAWS is the number of configurations, PENSTOCK_FIRST_DRAW the first one. A failure
// names its configuration.
#include <ATen/ATen.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <sstream>

#include "tests/engine/train/documents.h"
#include "tests/engine/train/run/processes_run.h"
#include "train/compiled/compile_stages.h"
#include "train/data/run_tokenizer.h"

namespace penstock {
namespace {

using Texts = std::vector<std::string>;

// Choices of a draw, each a text of options.
struct Axis {
  std::vector<const char*> choices;
  std::string_view models = {};  // that have these options; empty: all

  bool IsOf(std::string_view model) const {
    return models.empty() ||
           fmt::format(" {} ", models).find(fmt::format(" {} ", model)) != std::string::npos;
  }
};

constexpr const char* kModels[] = {"llama",     "qwen3",       "gpt2",       "mixtral",
                                   "qwen3_moe", "deepseek_v2", "deepseek_v3"};
constexpr std::string_view kGroupedHeads = "llama qwen3 mixtral qwen3_moe";
constexpr std::string_view kExperts = "mixtral qwen3_moe deepseek_v2 deepseek_v3";

// What the divided model and the whole one have in common.
const Axis kCommon[] = {
    {{"heads=4", "heads=6", "heads=12", "heads=12"}},
    {{"", "kv_heads=1", "kv_heads=2"}, kGroupedHeads},
    {{"hidden=96", "hidden=96", "hidden=48", "hidden=50"}},
    {{"layers=4", "layers=4", "layers=5"}},
    {{"vocabulary=264", "vocabulary=264", "vocabulary=264", "vocabulary=257"}},
    {{"sequence=12", "sequence=12", "sequence=12", "sequence=9"}},
    {{"tied=false", "tied=true"}},
    // A normalized weight of one expert is 1, and the gradient of its router only rounding errors.
    {{"experts=4 top_k=2", "experts=6 top_k=1 normalize_top_k=false", "experts=8 top_k=3"},
     kExperts},
    {{"expert_hidden=24", "expert_hidden=24", "expert_hidden=20"}, kExperts},
    {{"balance=none", "balance=loss balance_loss=0.1", "balance=bias"}, kExperts},
    {{"", "dense_layers=1", "shared_experts=1"}, kExperts},
    {{"", "predictor=1"}, "deepseek_v3"},
    {{"schedule=gpipe ranks=1 stages=1", "schedule=1f1b ranks=2 stages=2",
      "schedule=zb-h1 ranks=2 stages=2", "schedule=interleaved ranks=2 stages=4",
      "schedule=zbv ranks=2 stages=4", "schedule=dualpipe ranks=2 stages=2",
      "schedule=dualpipev ranks=2 stages=4", "schedule=seq1f1b ranks=2 stages=2 slices=2"}},
    {{"microbatches=4", "microbatches=8", "microbatches=8"}},
    {{"", "", "parallel.data=2", "parallel.data=2 parallel.zero=1",
      "parallel.data=2 parallel.zero=2", "parallel.data=2 parallel.zero=3"}},
    {{"", "parallel.expert=2"}, kExperts},
    {{"", "", "recompute.hold=least", "recompute.modules=mlp"}},
    {{"exact=true", "exact=false"}},
    {{"", "", "", "precision=bf16"}},
    {{"", "", "", "document_mask=true"}},
    {{"", "clip=0.05", "clip=0.05 post_validation=true"}},
    {{"", "", "optimizer.name=muon"}},
};

// How ranks divide the model.
const Axis kDivisions[] = {
    {{"parallel.tensor=2", "parallel.tensor=2", "parallel.tensor=3", "parallel.tensor=4"}},
    {{"", "", "parallel.sequence_parallel=false"}},
    {{"", "parallel.expert_tensor=1"}, kExperts},
    {{"", "", "parallel.context=2", "parallel.context=2 parallel.context_exchange=ulysses",
      "parallel.context=2 parallel.context_exchange=ring", "parallel.context=3 parallel.tensor=1"}},
    {{"", "", "parallel.gather_again=true"}},
};

int FromEnvironment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

bool Has(const Texts& options, std::string_view option) {
  return std::ranges::find(options, option) != options.end();
}

// The same number of draws for each model, so that an axis at the end changes no other one.
Texts DrawOf(std::span<const Axis> axes, std::string_view model, std::mt19937& random) {
  Texts options;
  for (const Axis& axis : axes) {
    std::istringstream choice(axis.choices[random() % axis.choices.size()]);
    if (!axis.IsOf(model)) continue;
    for (std::string option; choice >> option;) options.push_back(option);
  }
  return options;
}

// The largest relative errors of losses, norms of gradients and weights.
struct Errors {
  double loss = 0, norm = 0, weights = 0;

  void Add(const Errors& other) {
    loss = std::max(loss, other.loss);
    norm = std::max(norm, other.norm);
    weights = std::max(weights, other.weights);
  }
};

double RelativeError(double expected, double actual) {
  return std::abs(expected - actual) / std::max(std::abs(expected), 1e-12);
}

class DrawnConfigurations : public ProcessesRun {
 protected:
  DrawnConfigurations() {
    text_ = folder_.Write("fortunes", DistinctDocuments(600, 20));
    base_ = {"device=cpu", "dim=48", "batch=2", "steps=3", "warmup=1", "sample=0", "dropout=0",
             // Else Adam divides gradients by numbers that rounding determines.
             "optimizer.epsilon=1e-3", "every=0"};
  }

  Errors Compare(const std::string& one, const std::string& other) const {
    Errors errors;
    const auto expected = Metrics(one), actual = Metrics(other);
    EXPECT_EQ(expected.size(), actual.size());
    for (std::size_t i = 0; i < std::min(expected.size(), actual.size()); ++i) {
      errors.Add({RelativeError(expected[i].loss, actual[i].loss),
                  RelativeError(expected[i].grad_norm, actual[i].grad_norm)});
    }
    const auto weights = AllTensors(Folder(one) + "/model.safetensors");
    const auto others = AllTensors(Folder(other) + "/model.safetensors");
    EXPECT_EQ(weights.size(), others.size());
    for (const auto& [name, value] : weights) {
      const at::Tensor difference = value.to(at::kDouble) - others.at(name).to(at::kDouble);
      const double size = value.to(at::kDouble).norm().item<double>();
      errors.Add({.weights = difference.norm().item<double>() / std::max(size, 1e-12)});
    }
    return errors;
  }

  // Returns whether the configuration can be run.
  bool RunCase(int number) {
    std::mt19937 random(static_cast<unsigned>(number));
    const char* const model = kModels[random() % std::size(kModels)];
    const Texts common =
        With({fmt::format("model.name={}", model)}, DrawOf(kCommon, model, random));
    const Texts divided = With(common, DrawOf(kDivisions, model, random));
    SCOPED_TRACE(fmt::format("draw {}: {}", number, fmt::join(divided, " ")));
    if (!RunAlone(With(common, {"name=whole"}))) return false;
    const auto summary = RunAlone(With(divided, {"name=divided"}));
    if (!summary) {
      EXPECT_EQ(summary.error().line().find_first_of("\n"), std::string::npos);
      EXPECT_TRUE(summary.error().parameter.starts_with("parallel.")) << summary.error().line();
      return false;
    }
    Check(Compare("whole", "divided"), divided);
    const Outcome first = CollectAndRemove("divided");
    EXPECT_TRUE(RunAlone(With(divided, {"name=divided"})));
    ExpectSame(first, CollectAndRemove("divided"));
    if (number % 4 == 0 && Config(divided).pipeline.slices == 1) CheckCompiled(divided, first);
    std::filesystem::remove_all(Folder("whole"));
    return true;
  }

  // Stages of files train the same bits.
  void CheckCompiled(const Texts& divided, const Outcome& captured) {
    const std::string folder = folder_ / "stages";
    TrainConfig config = Config(divided);
    ASSERT_TRUE(SetDocumentEnd(config));
    ASSERT_TRUE(CompileStages(config, folder));
    EXPECT_TRUE(RunAlone(With(divided, {"name=divided", "compiled=" + folder})));
    const Outcome compiled = CollectAndRemove("divided");
    EXPECT_EQ(compiled.metrics, captured.metrics);
    for (const auto& [file, tensors] : captured.tensors) {
      ExpectSameTensors(tensors, compiled.tensors.at(file));
    }
    std::filesystem::remove_all(folder);
  }

  void Check(const Errors& errors, const Texts& options) {
    const bool is_rounded = Has(options, "precision=bf16");
    EXPECT_LT(errors.loss, is_rounded ? 0.02 : 1e-5);
    if (is_rounded) return;
    EXPECT_LT(errors.norm, 1e-5);
    // Newton-Schulz iterations enlarge small singular values, and their rounding errors.
    EXPECT_LT(errors.weights, Has(options, "optimizer.name=muon") ? 1e-4 : 1e-5);
    largest_.Add(errors);
  }

  Errors largest_;  // in fp32
};

TEST_F(DrawnConfigurations, TrainTheSameModel) {
  const int first = FromEnvironment("PENSTOCK_FIRST_DRAW", 0);
  const int count = FromEnvironment("PENSTOCK_DRAWS", 20);
  int ran = 0;
  for (int number = first; number < first + count; ++number) ran += RunCase(number) ? 1 : 0;
  EXPECT_GE(ran, count / 4);
  RecordProperty("runs", ran);
  RecordProperty("largest_errors", fmt::format("loss {:.2g}, norm {:.2g}, weights {:.2g}",
                                               largest_.loss, largest_.norm, largest_.weights));
}

}  // namespace
}  // namespace penstock
