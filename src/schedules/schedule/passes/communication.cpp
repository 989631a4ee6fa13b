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
#include <limits>
#include <vector>

#include "base/index.h"
#include "schedule/passes/lanes.h"
#include "schedule/passes/pass_table.h"
#include "schedule/passes/unit_ticks.h"
#include "schedule/reserve.h"

namespace penstock {
namespace {

constexpr Tick kNoTick = std::numeric_limits<Tick>::max();

// Returns the rank that reads what a part produces, -1 if it is the same rank or none.
int ReaderOf(const StageEdges& edges, Op op) {
  if (op == Op::kForward) return edges.next_rank;
  return MakesInputGradient(op) ? edges.previous_rank : -1;
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
