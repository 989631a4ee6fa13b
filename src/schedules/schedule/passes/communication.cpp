// Adds SEND and RECV for every edge between two ranks.
//
//   before   rank 0: 0F0 0F1 0B0 ...          rank 1: 1F0 1B0 ...
//   after    rank 0: 0F0 0SEND_F0 0F1 ...     rank 1: 1RECV_F0 1F0 1B0 1SEND_B0 ...
//
// The pass runs the schedule in ticks of one action per rank. A producer's SEND follows it at the
// end of its tick, and the RECV follows what the consumer has run by then. Within a tick, messages
// of lower ranks go first. So both ends of every message have the same place in one global order.
// Whatever the transport (asynchronous, in order without tags, or a rendezvous of both ends),
// walking the lanes cannot deadlock, and any two ranks see their messages in the same order.
//
// Once the ticks are known, each lane is written by itself, from its own actions and its
// neighbors'. These are long streams, which the processor prefetches well even with a thousand
// ranks.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/index.h"
#include "base/system/prefetch.h"
#include "schedule/deps.h"
#include "schedule/passes/lanes.h"
#include "schedule/passes/pass_table.h"
#include "schedule/reserve.h"
#include "schedule/schedule.h"
#include "schedule/stage_edges.h"
#include "schedule/vocabulary.h"

namespace penstock {
namespace {

using Tick = std::int32_t;

// The tick of each action if every compute action and pass of the vocabulary takes one tick and
// messages take none.
struct UnitTicks {
  // By rank and position. An action that does not compute has the tick of the next one that does,
  // or follows the last.
  std::vector<std::vector<Tick>> ticks;
  bool has_communication = false;  // there is a SEND or RECV; `ticks` is incomplete
};

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
    const int reader = part.op == Op::kForward ? edges.next_rank : edges.gradient_to;
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

// Returns the ticks in linear time. `edges` are the schedule's EdgesOf.
// Requires: the schedule is valid; throws InternalError if a rank waits forever.
UnitTicks RunInTicks(const Schedule& schedule, const std::vector<StageEdges>& edges) {
  return TickRun(schedule, edges).Run();
}

constexpr Tick kNoTick = std::numeric_limits<Tick>::max();

// Returns the rank that reads what a part produces, -1 if it is the same rank or none.
int ReaderOf(const StageEdges& edges, Op op) {
  if (op == Op::kForward) return edges.next_rank;
  return MakesInputGradient(op) ? edges.gradient_to : -1;
}

// The messages that one rank sends to another, in order.
class Incoming {
 public:
  Incoming(const std::vector<StageEdges>& edges, int reader, int sender, const Lane& lane,
           const std::vector<Tick>& ticks)
      : edges_(edges.data()),
        reader_(reader),
        sender_(sender),
        next_(lane.data()),
        end_(lane.data() + lane.size()),
        ticks_(ticks.data()) {
    Find();
  }

  int sender() const { return sender_; }
  // When the first message leaves; kNoTick if none is left.
  Tick tick() const { return tick_; }
  Action Receive() const {
    const bool forward = part_->op == Op::kForward;
    return MakeAction(forward ? Op::kRecvForward : Op::kRecvBackward,
                      forward ? part_->stage + 1 : part_->stage - 1, part_->microbatch);
  }
  void Pop() {
    const bool second_is_left = part_ == &next_->first && next_->is_pair();
    if (second_is_left && IsForReader(next_->second)) {
      part_ = &next_->second;
      return;
    }
    Step();
    Find();
  }

 private:
  bool IsForReader(const Part& part) const {
    return ReaderOf(edges_[part.stage], part.op) == reader_;
  }
  void Step() { ++next_, ++ticks_; }
  void Find() {
    for (; next_ != end_; Step()) {
      part_ = IsForReader(next_->first) ? &next_->first : &next_->second;
      if (part_ == &next_->first || (next_->is_pair() && IsForReader(next_->second))) {
        tick_ = *ticks_;
        return;
      }
    }
    tick_ = kNoTick;
  }

  const StageEdges* edges_;
  int reader_, sender_;
  const Action* next_;
  const Action* end_;
  const Tick* ticks_;
  const Part* part_ = nullptr;
  Tick tick_ = kNoTick;
};

// Writes one rank's lane.
class LaneWriter {
 public:
  LaneWriter(const Schedule& schedule, const std::vector<StageEdges>& edges, const UnitTicks& ticks,
             int rank)
      : edges_(edges), rank_(rank), actions_(schedule.lanes[rank]), ticks_(ticks.ticks[rank]) {
    std::size_t cells = actions_.size();
    for (const int stage : schedule.placement.stages_of(rank)) {
      for (const int peer : {edges[stage].previous_rank, edges[stage].next_rank}) {
        if (peer < 0) continue;
        cells += 2 * Index(schedule.indices());  // a SEND and a RECV per microbatch index
        AddSender(schedule, ticks, peer);
      }
    }
    ReserveLong(lane_, cells);
    if (incoming_.empty()) return;
    first_ = incoming_.data();
    FindFirst();
  }

  Lane Write() && {
    for (std::size_t i = 0; i < actions_.size(); ++i) {
      const Action& action = actions_[i];
      const Tick tick = ticks_[i];
      ReceiveBefore(tick, -1);
      lane_.push_back(action);
      if (IsCompute(action)) {
        ForEachPart(action, [&](const Part& part) { Send(part, tick); });
      }
    }
    ReceiveBefore(kNoTick, -1);
    return std::move(lane_);
  }

 private:
  void AddSender(const Schedule& schedule, const UnitTicks& ticks, int sender) {
    for (const Incoming& incoming : incoming_) {
      if (incoming.sender() == sender) return;
    }
    incoming_.emplace_back(edges_, rank_, sender, schedule.lanes[sender], ticks.ticks[sender]);
  }

  void Send(const Part& part, Tick tick) {
    if (ReaderOf(edges_[part.stage], part.op) < 0) return;
    ReceiveBefore(tick, rank_);
    const Op op = part.op == Op::kForward ? Op::kSendForward : Op::kSendBackward;
    lane_.push_back(MakeAction(op, part.stage, part.microbatch));
  }

  // Writes the RECVs of all messages before the place (tick, sender) in the global order.
  void ReceiveBefore(Tick tick, int sender) {
    while (first_ != nullptr && IsBefore(*first_, tick, sender)) {
      lane_.push_back(first_->Receive());
      first_->Pop();
      FindFirst();
    }
  }
  void FindFirst() {
    for (Incoming& incoming : incoming_) {
      if (IsBefore(incoming, first_->tick(), first_->sender())) first_ = &incoming;
    }
  }
  static bool IsBefore(const Incoming& incoming, Tick tick, int sender) {
    return incoming.tick() < tick || (incoming.tick() == tick && incoming.sender() < sender);
  }

  const std::vector<StageEdges>& edges_;
  const int rank_;
  const Lane& actions_;
  const std::vector<Tick>& ticks_;
  std::vector<Incoming> incoming_;  // one per rank that sends here
  Incoming* first_ = nullptr;       // the one with the first message; null if no rank sends
  Lane lane_;
};

}  // namespace

Schedule AddCommunication(const Schedule& schedule) {
  const std::vector<StageEdges> edges = EdgesOf(schedule);
  const UnitTicks ticks = RunInTicks(schedule, edges);
  if (ticks.has_communication) return schedule;
  std::vector<Lane> lanes;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    lanes.push_back(LaneWriter(schedule, edges, ticks, rank).Write());
  }
  return WithLanes(schedule, std::move(lanes));
}

SchedulePass CommunicationPass() {
  return {"communication", "", "SEND and RECV for every edge between two ranks",
          [](const Schedule& schedule, const PassArguments& arguments,
             const PassContext&) -> Result<Schedule> {
            PENSTOCK_TRY_STATUS(arguments.Done());
            return AddCommunication(schedule);
          }};
}

}  // namespace penstock
