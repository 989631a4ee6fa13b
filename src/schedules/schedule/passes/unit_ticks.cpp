#include "schedule/passes/unit_ticks.h"

#include <algorithm>

#include "base/index.h"
#include "base/system/prefetch.h"
#include "schedule/deps.h"
#include "schedule/reserve.h"
#include "schedule/vocabulary.h"

namespace penstock {
namespace {

constexpr Tick kUnavailable = 0;  // no value is available before the first tick ends

// Runs each rank as far as it can, and resumes it when the value that it waits for is available.
class TickRun {
 public:
  TickRun(const Schedule& schedule, const std::vector<StageEdges>& edges)
      : schedule_(schedule), edges_(edges), indices_(Index(schedule.indices())) {
    ReserveLong(available_, 2 * indices_ * edges.size());
    available_.resize(2 * indices_ * edges.size(), kUnavailable);
    if (schedule.vocabulary) {
      available_.resize(2 * indices_ * (edges.size() + 1), kUnavailable);
      joined_.resize(kSharedValues * indices_);
    }
    ranks_.resize(schedule.lanes.size());
    result_.ticks.resize(schedule.lanes.size());
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const Lane& lane = schedule.lanes[rank];
      ReserveLong(result_.ticks[rank], lane.size());
      ranks_[rank].next = lane.data();
      ranks_[rank].end = lane.data() + lane.size();
    }
  }

  UnitTicks Run() {
    for (int rank = schedule_.ranks() - 1; rank >= 0; --rank) runnable_.push_back(rank);
    while (!runnable_.empty()) {
      const int rank = runnable_.back();
      runnable_.pop_back();
      Advance(rank);
      if (result_.has_communication) return std::move(result_);
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      PENSTOCK_CHECK(ranks_[rank].next == ranks_[rank].end,
                     "rank {} waits forever: the schedule is not valid", rank);
    }
    return std::move(result_);
  }

 private:
  static constexpr std::size_t kNothing = ~std::size_t{0};
  struct alignas(32) RankState {
    const Action* next = nullptr;
    const Action* end = nullptr;
    std::size_t waits_for = kNothing;  // Key of a value
    Tick clock = 0;                    // ticks elapsed
  };

  std::size_t Key(ValueKind kind, int stage, int microbatch) const {
    return 2 * (Index(stage) * indices_ + Index(microbatch)) + Index(kind);
  }

  void Advance(int rank) {
    RankState& state = ranks_[rank];
    std::vector<Tick>& ticks = result_.ticks[rank];
    constexpr std::size_t kReadAhead = 8;  // actions; past the end does no harm
    for (; state.next != state.end; ++state.next) {
      const Action& action = *state.next;
      PrefetchRead(state.next, kReadAhead);
      if (!IsCompute(action) && !IsVocabulary(action.first.op)) {
        // These get the tick of the next compute action, or an earlier one if that had to wait.
        // Either is after everything before them.
        result_.has_communication |= IsCommunication(action.first.op);
        ticks.push_back(state.clock);
        continue;
      }
      Tick start = state.clock;
      if (!Ready(rank, action, state, start)) return;
      ticks.push_back(start);
      state.clock = start + 1;
      ForEachPart(action, [&](const Part& part) {
        if (IsVocabulary(part.op)) {
          Join(part, state.clock);
        } else {
          Publish(part, state.clock);
        }
      });
    }
  }

  // Whether all values from other ranks are available, and when. The rank's own values are: its
  // own order computed them.
  bool Ready(int rank, const Action& action, RankState& state, Tick& start) const {
    bool ready = true;
    ForEachPart(action, [&](const Part& part) {
      ForEachDependency(edges_[part.stage].neighbors, schedule_.slices, part,
                        [&](const Value& value) {
                          if (edges_[value.stage].rank == rank) return;
                          const std::size_t key = Key(value.kind, value.stage, value.microbatch);
                          const Tick available = available_[key];
                          start = std::max(start, available);
                          if (available != kUnavailable) return;
                          ready = false;
                          state.waits_for = key;
                        });
      const auto look = [&](std::size_t key) {
        start = std::max(start, available_[key]);
        if (available_[key] != kUnavailable) return;
        ready = false;
        state.waits_for = key;
      };
      ForEachVocabularyDependency(
          ends_, part,
          [&](const Value& value) { look(Key(value.kind, value.stage, value.microbatch)); },
          [&](SharedValue value) { look(SharedKey(value, part.microbatch)); });
    });
    return ready;
  }

  // Values of all ranks have the keys of one more stage.
  std::size_t SharedKey(SharedValue value, int microbatch) const {
    return Key(static_cast<ValueKind>(value), static_cast<int>(edges_.size()), microbatch);
  }

  // Counts one rank's share of a value of all ranks.
  void Join(const Part& part, Tick end) {
    if (part.op != Op::kEmbed && part.op != Op::kVocabularyInput) return;
    const SharedValue value =
        part.op == Op::kEmbed ? SharedValue::kEmbedding : SharedValue::kSoftmax;
    auto& [ranks, latest] = joined_[Index(value) * indices_ + Index(part.microbatch)];
    latest = std::max(latest, end);
    if (++ranks == ranks_.size()) MakeAvailable(SharedKey(value, part.microbatch), latest);
  }

  void MakeAvailable(std::size_t key, Tick end) {
    available_[key] = end;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].waits_for != key) continue;
      ranks_[rank].waits_for = kNothing;
      runnable_.push_back(static_cast<int>(rank));
    }
  }

  void Publish(const Part& part, Tick end) {
    if (part.op == Op::kBackwardWeight) return;
    const StageEdges& edges = edges_[part.stage];
    const int reader = part.op == Op::kForward ? edges.next_rank : edges.previous_rank;
    const bool for_all =
        ends_.last >= 0 && part.stage == (part.op == Op::kForward ? ends_.last : ends_.first);
    if (for_all) MakeAvailable(Key(MadeBy(part.op), part.stage, part.microbatch), end);
    if (reader < 0) return;
    const std::size_t key = Key(MadeBy(part.op), part.stage, part.microbatch);
    available_[key] = end;
    std::size_t& waits_for = ranks_[reader].waits_for;
    if (waits_for != key) return;
    waits_for = kNothing;
    runnable_.push_back(reader);
    PrefetchRead(ranks_[reader].next, 0);  // read as soon as this rank has to wait
  }

  const Schedule& schedule_;
  const std::vector<StageEdges>& edges_;
  const std::size_t indices_;
  const VocabularyEnds ends_ = VocabularyEnds::Of(schedule_);
  // By (SharedValue, microbatch): the ranks that have computed their share, and the last one's end.
  std::vector<std::pair<std::size_t, Tick>> joined_;
  std::vector<Tick> available_;  // by Key: the tick after which a value is available to other ranks
  std::vector<RankState> ranks_;
  std::vector<int> runnable_;  // a stack: neighbors that alternate share cache lines
  UnitTicks result_;
};

}  // namespace

UnitTicks RunInTicks(const Schedule& schedule, const std::vector<StageEdges>& edges) {
  return TickRun(schedule, edges).Run();
}

}  // namespace penstock
