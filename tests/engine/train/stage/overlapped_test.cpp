// An overlapped pair gives the same bits as its parts in turn, and overlaps their exchanges.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "base/index.h"
#include "graph/compile.h"
#include "graph/ir/print.h"
#include "graph/ops/collective.h"
#include "model/model.h"
#include "tests/engine/train/temp_folder.h"
#include "tests/results.h"
#include "train/compiled/compiled.h"
#include "train/stage/torch_stage.h"

namespace penstock {
namespace {

constexpr int kGroup = 60;
constexpr int kPairMicrobatches = 3;
constexpr std::int64_t kPairVocabulary = 7, kPairDim = 4, kTokens = 6;

// Reverses data in blocks of four bytes when it is waited for. Records in `most` how many exchanges
// were in flight at once.
class Reversing final : public RankGroup {
 public:
  explicit Reversing(int& most) : RankGroup(0, 1), most_(most) {}
  Status Wait(Ticket ticket) override {
    --in_flight_;
    const CollectiveCall& call = pending_.at(Index(ticket));
    for (std::size_t i = 0; i < call.input.size(); i += 4) {
      std::copy_n(call.input.data() + i, 4, call.output.data() + call.output.size() - 4 - i);
    }
    return {};
  }
  void Abort(const Error&) override {}

 private:
  Ticket DoStart(const CollectiveCall& call) override {
    pending_.push_back(call);
    most_ = std::max(most_, ++in_flight_);
    return static_cast<Ticket>(pending_.size()) - 1;
  }

  int& most_;
  int in_flight_ = 0;
  std::vector<CollectiveCall> pending_;
};

// Experts between two exchanges, with dropout, and optionally with an embedding and logits.
class ExpertStage final : public StageModule {
 public:
  ExpertStage(bool first, bool last, bool exchanges) : exchanges_(exchanges) {
    at::manual_seed(first ? 1 : 2);
    const auto weight = [this](const char* name, std::int64_t rows, std::int64_t columns) {
      return register_parameter(name, at::randn({rows, columns}) * 0.5);
    };
    if (first) table_ = weight("table", kPairVocabulary, kPairDim);
    in_ = weight("in", kPairDim, kPairDim);
    out_ = weight("out", kPairDim, kPairDim);
    if (last) head_ = weight("head", kPairDim, kPairVocabulary);
  }

  at::Tensor forward(at::Tensor input) override {
    const at::Tensor x = table_.defined() ? at::embedding(table_, input.reshape({-1})) : input;
    const at::Tensor inside = at::dropout(Exchange(x.mm(in_)).tanh(), 0.3, is_training());
    const at::Tensor y = x + Exchange(inside.mm(out_));
    return head_.defined() ? y.mm(head_).reshape({1, kTokens, kPairVocabulary}) : y;
  }

 private:
  at::Tensor Exchange(const at::Tensor& x) { return exchanges_ ? AllToAll(x, kGroup) : x; }

  bool exchanges_;
  at::Tensor table_, in_, out_, head_;
};

at::Tensor DrawBatch(std::int64_t step, int microbatch, int which) {
  at::manual_seed(static_cast<std::uint64_t>(step * 100 + microbatch * 2 + which));
  return at::randint(kPairVocabulary, {1, kTokens}, at::kLong);
}

// Queues messages.
class PairInbox final : public Outlet {
 public:
  void Send(Message message) override { messages_.push_back(std::move(message)); }
  Message Take() {
    Message message = std::move(messages_.front());
    messages_.pop_front();
    return message;
  }

 private:
  std::deque<Message> messages_;
};

// A first and a last stage on one rank, which run overlapped pairs or the same parts in turn.
class TwoStages {
 public:
  struct Options {
    bool pairs = true;
    bool exchanges = true;
    bool backward_first = false;  // of a pair
    bool compiled = false;        // saved and loaded
  };

  explicit TwoStages(const Options& options) : options_(options) {
    at::Tensor example = DrawBatch(0, 0, 0);
    for (int i = 0; i < 2; ++i) {
      TorchStageOptions stage_options;
      stage_options.schedule.first = i == 0;
      stage_options.schedule.last = i == 1;
      stage_options.schedule.microbatches = kPairMicrobatches;
      stage_options.random.seed = static_cast<std::uint64_t>(i);
      StageExamples examples{{example}, {DrawBatch(0, 0, 1)}};
      const auto module = std::make_shared<ExpertStage>(i == 0, i == 1, options.exchanges);
      if (options.compiled) Compile(i, module, examples, stage_options);
      auto made = TorchStage::Make(
          module, examples,
          {[](std::int64_t step, int microbatch) { return DrawBatch(step, microbatch, 0); },
           [](std::int64_t step, int microbatch) { return DrawBatch(step, microbatch, 1); }},
          stage_options, [](std::vector<NamedParameter>& parameters) {
            for (NamedParameter& each : parameters) each.value.sub_(each.gradient, 0.1);
          });
      stages_.push_back(std::move(made).value());
      if (i == 0) example = stages_[0]->ExampleOutputs().front();
    }
  }

  // Runs a step with pairs of the two stages in both orders, and of a stage with itself.
  double Step(std::int64_t step) {
    for (auto& stage : stages_) stage->BeginStep(step);
    Run(Forward(0, 0));
    Run(Forward(1, 0));
    Pair(Forward(0, 1), Backward(1, 0));
    Pair(Forward(1, 1), Backward(0, 0));
    Run(Forward(0, 2));
    Pair(Forward(1, 2), Backward(1, 1));
    Run(Backward(1, 2));
    Run(Backward(0, 1));
    Run(Backward(0, 2));
    for (auto& stage : stages_) {
      EXPECT_EQ(stage->ActivationBytes(), 0);
      stage->Step();
    }
    return stages_[1]->StepLoss();
  }

  std::vector<at::Tensor> Parameters() {
    std::vector<at::Tensor> all;
    for (auto& stage : stages_) {
      for (NamedParameter& each : stage->Parameters()) all.push_back(each.value);
    }
    return all;
  }

 private:
  // Saves the stage and the pair of it with itself, and loads them.
  static void Compile(int stage, const std::shared_ptr<StageModule>& module,
                      const StageExamples& examples, TorchStageOptions& options) {
    CompileOptions how = {.overlapped = true};
    const StageProgram program =
        CompileStage(MakeStageSpec(module, examples, options), how).value();
    const TempFolder folder;
    const std::string file = CompiledFile(folder.path(), stage);
    ASSERT_TRUE(SaveStageProgram(file, program, {}));
    auto loaded = ValueOf(LoadStageProgram(file, {}));
    EXPECT_EQ(PrintGraph(loaded.overlapped.graph), PrintGraph(program.overlapped.graph));
    EXPECT_EQ(loaded.overlapped.inputs, program.overlapped.inputs);
    options.programs = std::make_shared<const std::vector<StageProgram>>(1, std::move(loaded));
  }

  TorchStage& StageOf(const Part& part) { return *stages_[part.stage]; }

  // F of stage 0 sends to F of stage 1, and B of stage 1 to B of stage 0.
  StageCall CallOf(const Part& part) {
    const bool forward = part.op == Op::kForward;
    const bool receives = forward == (part.stage == 1);
    return {part.op, part.microbatch,
            receives ? (forward ? activations_ : gradients_).Take() : Message(),
            forward ? activations_ : gradients_};
  }

  void Run(const Action& action) { StageOf(action.first).Run(CallOf(action.first)); }

  void Pair(const Action& forward, const Action& backward) {
    Part first = forward.first;
    Part second = backward.first;
    if (options_.backward_first) std::swap(first, second);
    StageCall a = CallOf(first);
    StageCall b = CallOf(second);
    TorchStage& stage = StageOf(first);
    const std::int64_t before = stage.ActivationBytes();
    std::int64_t held = 0;
    if (options_.pairs) {
      held = stage.Overlap(std::move(a), StageOf(second), std::move(b));
    } else {
      held = stage.Stage::Overlap(std::move(a), StageOf(second), std::move(b));
    }
    EXPECT_EQ(held, before + (options_.backward_first ? -1 : 1) * stage.SavedBytes());
  }

  Options options_;
  std::vector<std::unique_ptr<TorchStage>> stages_;
  PairInbox activations_, gradients_;
};

// Returns the maximum number of exchanges in flight.
int ExpectSameTraining(TwoStages::Options options) {
  at::set_num_threads(1);
  int most = 0;
  const GroupEndpoint end(kGroup, std::make_unique<Reversing>(most));
  TwoStages overlapped(options);
  options.pairs = false;
  options.compiled = false;
  TwoStages in_turn(options);
  for (int step = 0; step < 2; ++step) {
    const double expected = in_turn.Step(step);
    if (options.exchanges) {
      EXPECT_EQ(most, step == 0 ? 1 : 2);
    }
    EXPECT_EQ(overlapped.Step(step), expected);
    const auto a = overlapped.Parameters();
    const auto b = in_turn.Parameters();
    EXPECT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << i;
  }
  return most;
}

TEST(OverlappedStages, TrainAsInTurnAndOverlapExchanges) {
  EXPECT_EQ(ExpectSameTraining({}), 2);
  EXPECT_EQ(ExpectSameTraining({.backward_first = true}), 2);
}

TEST(OverlappedStages, RunInTurnWithoutExchanges) {
  EXPECT_EQ(ExpectSameTraining({.exchanges = false}), 0);
}

TEST(OverlappedStages, RunFromCompiledStages) {
  EXPECT_EQ(ExpectSameTraining({.compiled = true}), 2);
}

}  // namespace
}  // namespace penstock
