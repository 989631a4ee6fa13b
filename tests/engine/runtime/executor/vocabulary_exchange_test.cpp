// With a sharded vocabulary, every action finds the values that it waits for on its rank.
#include "runtime/executor/vocabulary_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>

#include "base/index.h"
#include "runtime/executor/run.h"
#include "schedule/catalog.h"
#include "schedule/passes/passes.h"
#include "schedule/vocabulary.h"
#include "tests/results.h"

namespace penstock {
namespace {

// Computes nothing, and knows the values and ranks that it has received in this step.
class ProbeShard final : public VocabularyShard {
 public:
  ProbeShard(int rank, int ranks) : rank_(rank), ranks_(ranks) {}

  void BeginStep() { taken_.clear(); }
  void Run(Op op, int microbatch) {
    if (op == Op::kEmbed) Note(VocabularyValue::kEmbedding, rank_, microbatch);
    if (op == Op::kVocabularyInput) {
      Require(VocabularyValue::kHidden, 1, microbatch);
      Note(VocabularyValue::kSoftmax, rank_, microbatch);
    }
    if (op == Op::kVocabularyWeight) Require(VocabularyValue::kSoftmax, ranks_, microbatch);
    if (op == Op::kEmbedGradient) Require(VocabularyValue::kGradient, 1, microbatch);
  }
  void Take(VocabularyValue value, int from, int microbatch, Message message) override {
    if (from != rank_) {
      EXPECT_EQ(TextOf(message), Text(value, from, rank_, microbatch));
    }
    Note(value, from, microbatch);
  }
  Message Share(VocabularyValue value, int to, int microbatch) override {
    EXPECT_NE(to, rank_);
    return CopyToMessage(Text(value, rank_, to, microbatch));
  }
  Message InputOf(Op op, int microbatch) override {
    const bool forward = op == Op::kForward;
    Require(forward ? VocabularyValue::kEmbedding : VocabularyValue::kSoftmax, ranks_, microbatch);
    return CopyToMessage("input");
  }

 private:
  static std::string Text(VocabularyValue value, int from, int to, int microbatch) {
    return fmt::format("{} {} {} {}", static_cast<int>(value), from, to, microbatch);
  }
  void Note(VocabularyValue value, int from, int microbatch) {
    std::vector<int>& ranks = taken_[{value, microbatch}];
    EXPECT_EQ(std::count(ranks.begin(), ranks.end(), from), 0) << "taken twice";
    ranks.push_back(from);
  }
  void Require(VocabularyValue value, int ranks, int microbatch) {
    EXPECT_EQ(std::ssize(taken_[std::pair(value, microbatch)]), ranks)
        << "value " << static_cast<int>(value) << " of microbatch " << microbatch;
  }

  int rank_, ranks_;
  std::map<std::pair<VocabularyValue, int>, std::vector<int>> taken_;  // ranks
};

class StageWithShard final : public Stage {
 public:
  // `shard` is null unless this is the first stage of its rank. An end of the chain gets the input
  // of its F, or of its I or B, from the rank's shard.
  StageWithShard(ProbeShard* shard, bool first, bool last)
      : shard_(shard), first_(first), last_(last) {}

  void BeginStep(std::int64_t) override {
    if (shard_ != nullptr) shard_->BeginStep();
  }
  void Forward(int, Message input, Outlet& output) override {
    EXPECT_EQ(TextOf(input), first_ ? "input" : "hidden");
    output.Send(CopyToMessage("hidden"));
  }
  void Backward(int microbatch, Message input, Outlet& output) override {
    BackwardInput(microbatch, std::move(input), output);
  }
  void BackwardInput(int, Message input, Outlet& output) override {
    EXPECT_EQ(TextOf(input), last_ ? "input" : "gradient");
    output.Send(CopyToMessage("gradient"));
  }
  void BackwardWeight(int) override {}
  void Step() override {}
  bool DoesSideWork(Op op) const override { return IsVocabulary(op); }
  void DoSideWork(Op op, int microbatch) override { shard_->Run(op, microbatch); }
  VocabularyShard* vocabulary() override { return shard_; }
  std::int64_t ActivationBytes() const override { return 0; }

 private:
  ProbeShard* shard_;
  bool first_, last_;
};

Schedule ShardedSchedule(const std::string& name, int ranks) {
  ScheduleParams params = {
      .ranks = ranks, .chunks = name == "interleaved" ? 2 : 0, .microbatches = 6};
  const Schedule schedule = Generate(name, params).value();
  return AddVocabulary(schedule, Costs::Uniform(schedule.placement, 1, 1, 1, 1)).value();
}

TEST(VocabularyExchange, EveryActionFindsItsValues) {
  for (const char* const name : {"1f1b", "gpipe", "interleaved", "zbv", "hanayo"}) {
    for (const int ranks : {1, 2, 3}) {
      if (ranks == 1 && std::string(name) != "gpipe") continue;
      SCOPED_TRACE(fmt::format("{} on {} ranks", name, ranks));
      const Schedule schedule = ShardedSchedule(name, ranks);
      const std::vector<int> owners = VocabularyStages(schedule);
      std::vector<std::unique_ptr<ProbeShard>> shards;
      for (int rank = 0; rank < ranks; ++rank) {
        shards.push_back(std::make_unique<ProbeShard>(rank, ranks));
      }
      std::vector<std::unique_ptr<StageWithShard>> made;
      std::vector<Stage*> stages;
      for (int stage = 0; stage < schedule.stages(); ++stage) {
        const int rank = schedule.placement.rank_of(stage);
        ProbeShard* const shard =
            owners[Index(rank)] == stage ? shards[Index(rank)].get() : nullptr;
        made.push_back(
            std::make_unique<StageWithShard>(shard, stage == 0, stage == schedule.stages() - 1));
        stages.push_back(made.back().get());
      }
      EXPECT_TRUE(Succeeds(RunRanks(schedule, stages, {.steps = 3})));
    }
  }
}

TEST(VocabularyExchange, EveryValueHasASlotOfItsOwn) {
  const Schedule schedule = ShardedSchedule("1f1b", 3);
  const MessageMap messages(schedule);
  std::vector<bool> is_used(Index(messages.slots()));
  const auto check = [&](VocabularyValue value, int from, int to) {
    for (int microbatch = 0; microbatch < schedule.indices(); ++microbatch) {
      const int slot = messages.VocabularySlot(value, from, to, microbatch);
      ASSERT_LT(slot, messages.NormSlot(0));
      EXPECT_FALSE(is_used[Index(slot)]) << slot;
      is_used[Index(slot)] = true;
      EXPECT_EQ(messages.from_rank(slot), from);
      EXPECT_EQ(messages.to_rank(slot), to);
    }
  };
  for (int rank = 0; rank < 3; ++rank) {
    check(VocabularyValue::kEmbedding, rank, 0);
    check(VocabularyValue::kHidden, 2, rank);
    check(VocabularyValue::kGradient, 0, rank);
    for (int other = 0; other < 3; ++other) check(VocabularyValue::kSoftmax, rank, other);
  }
  EXPECT_EQ(messages.Describe(messages.VocabularySlot(VocabularyValue::kSoftmax, 1, 2, 4)),
            "softmax of microbatch 4, from rank 1");
}

TEST(VocabularyExchange, AStageWithoutAShardIsRefused) {
  const Schedule schedule = ShardedSchedule("1f1b", 2);
  std::vector<std::unique_ptr<StageWithShard>> made;
  std::vector<Stage*> stages;
  for (int stage = 0; stage < 2; ++stage) {
    made.push_back(std::make_unique<StageWithShard>(nullptr, stage == 0, stage == 1));
    stages.push_back(made.back().get());
  }
  EXPECT_TRUE(Refused(RunRanks(schedule, stages, {}), "stage 0 has no share of it"));
}

}  // namespace
}  // namespace penstock
