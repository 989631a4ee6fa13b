// Shards embedding, head and loss over the ranks (vocabulary.h).
//
//   before   rank 1 of 2, 1f1b   1F0 1B0 1F1 1B1 1F2 ...
//   after                        1EMBED0 1EMBED1 1F0 1S0 1F1 1B0 1T0 1S1 1F2 1B1 ...
//
// The gradient of a microbatch exists only after S of all ranks, so every rank first moves its
// backwards after as many more forwards as a microbatch has on the rank (one, without chunks): in
// 1f1b, rank r then holds p - r + 1 microbatches instead of p - r. The passes go where the ranks
// have time for them with the given costs. A run decides that: whenever a rank is free, it takes
// what can start first; among several that can start at once, in this order:
//
//   EMBED       which the first stage reads, at most two microbatches ahead of it
//   S           which all ranks wait for
//   F, I, W, B  in their order
//   T           which nothing waits for, but a rank holds at most two softmaxes
//   EMBED_GRAD
//
// Any order that such a run takes is free of deadlock. A few schedules with two chunks cannot run
// to their end with backwards that much later; theirs come later still.
#include "schedule/vocabulary.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/index.h"
#include "schedule/passes/lanes.h"
#include "schedule/passes/pass_table.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

constexpr double kNotReady = std::numeric_limits<double>::infinity();
// The microbatches that EMBED may be ahead of the first stage, and S ahead of T on one rank.
constexpr int kEmbedsAhead = 2;
constexpr int kSoftmaxes = 2;

// Returns the lane with each backward after `count` more forwards.
Lane WithLaterBackwards(const Lane& lane, std::size_t count) {
  Lane forwards;
  std::vector<std::pair<std::size_t, Action>> backwards;  // with the forwards before it
  for (const Action& action : lane) {
    if (action.first.op == Op::kForward) {
      forwards.push_back(action);
    } else {
      backwards.emplace_back(forwards.size() + count, action);
    }
  }
  Lane shifted;
  shifted.reserve(lane.size());
  std::size_t next = 0;
  for (const auto& [before, action] : backwards) {
    while (next < std::min(before, forwards.size())) shifted.push_back(forwards[next++]);
    shifted.push_back(action);
  }
  shifted.insert(shifted.end(), forwards.begin() + static_cast<std::ptrdiff_t>(next),
                 forwards.end());
  return shifted;
}

// Each rank's backwards come after one more forward per stage of the rank, and `more` of them.
std::vector<Lane> LaterBackwards(const Schedule& schedule, std::size_t more) {
  std::vector<Lane> lanes;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const std::size_t stages = schedule.placement.stages_of(rank).size();
    lanes.push_back(WithLaterBackwards(schedule.lanes[Index(rank)], stages + more));
  }
  return lanes;
}

class Placer {
 public:
  Placer(const Schedule& schedule, const Costs& costs)
      : schedule_(schedule),
        costs_(costs),
        indices_(schedule.indices()),
        ends_(VocabularyEnds::Of(schedule)),
        stages_(VocabularyStages(schedule)),
        ends_of_values_(Index(schedule.stages()) * 2 * Index(indices_), kNotReady),
        shared_(kSharedValues * Index(indices_)),
        ranks_(schedule.lanes.size()) {}

  // Returns the lanes with the passes; fewer actions if the order of the others cannot be kept.
  std::vector<Lane> Run() {
    for (;;) {
      std::size_t rank = 0;
      Choice best;
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        const Choice choice = ChoiceOf(r);
        if (choice.start >= best.start) continue;
        best = choice;
        rank = r;
      }
      if (best.start == kNotReady) break;
      Emit(rank, best);
    }
    std::vector<Lane> lanes;
    for (RankState& rank : ranks_) lanes.push_back(std::move(rank.lane));
    return lanes;
  }

 private:
  enum Pass { kEmbeds, kInputs, kWeights, kGradients, kPasses };
  static constexpr std::array<Op, kPasses> kOps = {Op::kEmbed, Op::kVocabularyInput,
                                                   Op::kVocabularyWeight, Op::kEmbedGradient};
  struct RankState {
    double clock = 0;
    std::size_t position = 0;         // in the lane without passes
    std::array<int, kPasses> next{};  // microbatch of each pass
    Lane lane;
  };
  struct Choice {
    Action action;
    double start = kNotReady;
  };
  struct Joined {
    std::size_t ranks = 0;
    double end = 0;
  };

  // The choice that starts first; the earlier one in the list of priorities if several do.
  Choice ChoiceOf(std::size_t rank) const {
    const RankState& state = ranks_[rank];
    Choice best;
    const auto offer = [&](const Action& action) {
      const double start = std::max(state.clock, ReadyAt(rank, action.first));
      if (start < best.start) best = {action, start};
    };
    const auto offer_pass = [&](Pass pass) {
      const int n = state.next[pass];
      if (n < indices_) offer(MakeAction(kOps[pass], stages_[rank], n));
    };
    if (state.next[kEmbeds] < first_forwards_ + kEmbedsAhead) offer_pass(kEmbeds);
    // T comes first if the rank could run S, but holds too many softmaxes.
    const bool room = state.next[kInputs] < state.next[kWeights] + kSoftmaxes;
    if (room) {
      offer_pass(kInputs);
    } else if (HasInputOfS(state)) {
      offer_pass(kWeights);
    }
    const Lane& lane = schedule_.lanes[rank];
    if (state.position < lane.size()) offer(lane[state.position]);
    offer_pass(kWeights);
    offer_pass(kGradients);
    return best;
  }

  // Whether the input of the rank's next S is there.
  bool HasInputOfS(const RankState& state) const {
    const int n = state.next[kInputs];
    return n < indices_ &&
           ends_of_values_[Key({ValueKind::kActivation, ends_.last, n})] <= state.clock;
  }

  std::size_t Key(const Value& value) const {
    return (Index(value.stage) * 2 + Index(value.kind)) * Index(indices_) + Index(value.microbatch);
  }

  // When the inputs of a part are on the rank; kNotReady while one is not computed.
  double ReadyAt(std::size_t rank, const Part& part) const {
    double ready = 0;
    const auto look = [&](const Value& value) {
      const bool here = Index(schedule_.placement.rank_of(value.stage)) == rank;
      ready = std::max(ready, ends_of_values_[Key(value)] + (here ? 0 : costs_.comm));
    };
    ForEachDependency(ChainShape::Of(schedule_), part, look);
    ForEachVocabularyDependency(ends_, part, look, [&](SharedValue value) {
      const Joined& joined = shared_[Index(value) * Index(indices_) + Index(part.microbatch)];
      ready =
          std::max(ready, joined.ranks == ranks_.size() ? joined.end + costs_.exchange : kNotReady);
    });
    return ready;
  }

  void Emit(std::size_t rank, const Choice& choice) {
    RankState& state = ranks_[rank];
    const Part& part = choice.action.first;
    state.lane.push_back(choice.action);
    state.clock = choice.start + costs_.Duration(part);
    if (IsVocabulary(part.op)) {
      ++state.next[Index(part.op) - Index(Op::kEmbed)];
      if (part.op == Op::kEmbed) Join(SharedValue::kEmbedding, part.microbatch, state.clock);
      if (part.op == Op::kVocabularyInput)
        Join(SharedValue::kSoftmax, part.microbatch, state.clock);
      return;
    }
    ++state.position;
    if (part.op == Op::kForward && part.stage == ends_.first) ++first_forwards_;
    if (part.op == Op::kBackwardWeight) return;
    ends_of_values_[Key({MadeBy(part.op), part.stage, part.microbatch})] = state.clock;
  }

  void Join(SharedValue value, int microbatch, double end) {
    Joined& joined = shared_[Index(value) * Index(indices_) + Index(microbatch)];
    ++joined.ranks;
    joined.end = std::max(joined.end, end);
  }

  const Schedule& schedule_;
  const Costs& costs_;
  const int indices_;
  const VocabularyEnds ends_;
  const std::vector<int> stages_;       // by rank
  std::vector<double> ends_of_values_;  // by Key
  std::vector<Joined> shared_;          // by (SharedValue, microbatch)
  int first_forwards_ = 0;              // of the first stage, so far
  std::vector<RankState> ranks_;
};

Status CheckCanShard(const Schedule& schedule) {
  const char* refused = nullptr;
  if (schedule.placement.replicas() != 1) refused = "replicas of the stages";
  if (schedule.slices != 1) refused = "slices of a microbatch along the sequence";
  if (schedule.steps != 1) refused = "several batches";
  if (schedule.weights != WeightPolicy::kFlush) refused = "weights without a flush";
  if (!schedule.backward.empty()) refused = "stages that are not trained";
  if (refused != nullptr) {
    return InvalidArgument(
        "schedule '{}' has {}, and a sharded vocabulary needs a single chain of "
        "stages that flushes",
        schedule.algorithm, refused);
  }
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    if (schedule.placement.stages_of(rank).empty()) {
      return InvalidArgument("rank {} has no stage, but every rank holds a share of the vocabulary",
                             rank);
    }
    for (const Action& action : schedule.lanes[Index(rank)]) {
      if (!action.is_pair() && IsCompute(action)) continue;
      return InvalidArgument(
          "rank {} has {}, but the vocabulary can only be sharded in schedules of F, I, W and B "
          "alone: use a schedule without overlapped pairs, and run this pass before others",
          rank, ToText(action));
    }
  }
  return {};
}

}  // namespace

Result<Schedule> AddVocabulary(const Schedule& schedule, const Costs& costs) {
  if (schedule.vocabulary) return schedule;
  PENSTOCK_TRY_STATUS(CheckCanShard(schedule));
  const std::size_t passes = 4 * Index(schedule.indices()) * Index(schedule.ranks());
  for (std::size_t more = 0;; ++more) {
    Schedule shifted = WithLanes(schedule, LaterBackwards(schedule, more));
    shifted.vocabulary = true;
    Schedule result = WithLanes(shifted, Placer(shifted, costs).Run());
    // Once every backward is after all forwards, no order deadlocks.
    if (result.action_count() == schedule.action_count() + passes) return result;
    PENSTOCK_CHECK(more <= schedule.action_count(), "the schedule is not valid");
  }
}

SchedulePass VocabularyPass() {
  return {"vocabulary", "",
          "EMBED, S, T and EMBED_GRAD on every rank: embedding, head and loss are sharded over the "
          "ranks, and backwards come one microbatch later",
          [](const Schedule& schedule, const PassArguments& arguments,
             const PassContext& context) -> Result<Schedule> {
            PENSTOCK_TRY_STATUS(arguments.Done());
            return AddVocabulary(schedule, context.costs);
          }};
}

}  // namespace penstock
