// Adds SEND and RECV for every edge between two ranks.
//
//   before   rank 0: 0F0 0F1 0B0 ...          rank 1: 1F0 1B0 ...
//   after    rank 0: 0F0 0SEND_F0 0F1 ...     rank 1: 1RECV_F0 1F0 1B0 1SEND_B0 ...
//
// The schedule is played in ticks of one action a rank. When a producer's tick ends, its SEND goes
// behind it and the RECV to the end of what the consumer has done by then. So both ends of every
// message stand at one place of one global order: whatever the transport (asynchronous, in order
// without tags, or a rendezvous of both ends), walking the lanes cannot deadlock, and any two ranks
// see their messages in the same order. A rank that waits costs nothing, so the pass is linear.
#include <cstdint>
#include <vector>

#include "schedule/passes/lanes.h"
#include "schedule/passes/pass_table.h"
#include "schedule/reserve.h"
#include "schedule/stage_edges.h"

namespace penstock {
namespace {

constexpr std::uint8_t Bit(ValueKind kind) { return static_cast<std::uint8_t>(1U << int(kind)); }
constexpr std::size_t Index(int i) { return static_cast<std::size_t>(i); }

class Lowering {
 public:
  explicit Lowering(const Schedule& schedule)
      : cuts_(schedule.cuts), rows_(Index(schedule.rows())), edges_(EdgesOf(schedule)) {
    ReserveLong(made_, rows_ * Index(schedule.stages()));
    made_.resize(rows_ * Index(schedule.stages()));
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
      const Lane& lane = schedule.lanes[Index(rank)];
      Cursor& cursor = cursors_.emplace_back();
      cursor.next = lane.data();
      cursor.end = lane.data() + lane.size();
      // Each edge to another rank is a SEND and a RECV for each row.
      std::size_t cells = lane.size();
      for (const int stage : schedule.placement.stages_of(rank)) {
        if (edges_[Index(stage)].next_rank >= 0) cells += 2 * rows_;
        if (edges_[Index(stage)].previous_rank >= 0) cells += 2 * rows_;
      }
      ReserveLong(cursor.lane, cells);
    }
  }

  std::vector<Lane> Run() {
    std::vector<int> tick, next, ran;
    for (std::size_t rank = 0; rank < cursors_.size(); ++rank) {
      next.push_back(static_cast<int>(rank));
    }
    while (!next.empty()) {
      tick.swap(next);
      next.clear();
      ran.clear();
      for (const int rank : tick) {
        if (Advance(rank)) ran.push_back(rank);
      }
      // What a tick made is there from the next one on.
      for (const int rank : ran) {
        Cursor& cursor = cursors_[Index(rank)];
        const Action action = cursor.next[-1];
        ForEachPart(action, [&](const Part& part) { Publish(rank, part, next); });
        if (cursor.next != cursor.end) next.push_back(rank);
        Prefetch(rank);
      }
    }
    std::vector<Lane> lanes;
    for (Cursor& cursor : cursors_) {
      PENSTOCK_CHECK(cursor.next == cursor.end, "rank {} waits forever: the schedule is not valid",
                     lanes.size());
      lanes.push_back(std::move(cursor.lane));
    }
    return lanes;
  }

 private:
  static constexpr std::size_t kNothing = ~std::size_t{0};

  // Where a rank stands; one cache line, as hundreds of ranks are visited in turn.
  struct alignas(64) Cursor {
    const Action* next = nullptr;
    const Action* end = nullptr;
    std::size_t waits_for = kNothing;  // WaitKey of the value that a blocked rank needs
    Lane lane;                         // what is written so far
  };
  std::size_t Key(int stage, int row) const { return Index(stage) * rows_ + Index(row); }
  static std::size_t WaitKey(std::size_t key, ValueKind kind) {
    return 2 * key + static_cast<std::size_t>(kind);
  }

  // With hundreds of ranks the hardware does not see the streams of each: fetch a few actions
  // ahead, about a cache line read and two written a visit.
  void Prefetch(int rank) const {
    constexpr int kReadAhead = 4, kWriteAhead = 8;  // actions; past the end does no harm
    const Cursor& cursor = cursors_[Index(rank)];
    __builtin_prefetch(cursor.next + kReadAhead, 0);
    __builtin_prefetch(cursor.lane.data() + cursor.lane.size() + kWriteAhead, 1);
  }

  // Emits the rank's next compute action, and all others on the way to it. False if it must wait
  // or its lane is at its end.
  bool Advance(int rank) {
    Cursor& cursor = cursors_[Index(rank)];
    while (cursor.next != cursor.end) {
      const Action& action = *cursor.next;
      const bool compute = IsCompute(action);
      if (compute && !Ready(rank, action, cursor)) return false;
      cursor.lane.push_back(action);
      ++cursor.next;
      if (compute) return true;
    }
    return false;
  }

  // Values of the rank itself are there: its own order brought them.
  bool Ready(int rank, const Action& action, Cursor& cursor) const {
    bool ready = true;
    ForEachPart(action, [&](const Part& part) {
      ForEachDependency(edges_[part.stage].neighbours, cuts_, part, [&](const Value& value) {
        if (edges_[Index(value.stage)].rank == rank) return;
        const std::size_t key = Key(value.stage, value.microbatch);
        if ((made_[key] & Bit(value.kind)) != 0) return;
        ready = false;
        cursor.waits_for = WaitKey(key, value.kind);
      });
    });
    return ready;
  }

  void Publish(int rank, const Part& part, std::vector<int>& next) {
    if (part.op == Op::kBackwardWeight) return;
    const bool forward = part.op == Op::kForward;
    const StageEdges& edges = edges_[part.stage];
    const int peer = forward ? edges.next_rank : edges.previous_rank;
    if (peer < 0) return;
    const std::size_t key = Key(part.stage, part.microbatch);
    made_[key] |= Bit(MadeBy(part.op));
    const int consumer = forward ? part.stage + 1 : part.stage - 1;
    cursors_[Index(rank)].lane.push_back(
        MakeAction(forward ? Op::kSendForward : Op::kSendBackward, part.stage, part.microbatch));
    cursors_[Index(peer)].lane.push_back(
        MakeAction(forward ? Op::kRecvForward : Op::kRecvBackward, consumer, part.microbatch));
    if (cursors_[Index(peer)].waits_for == WaitKey(key, MadeBy(part.op))) {
      cursors_[Index(peer)].waits_for = kNothing;
      next.push_back(peer);
    }
  }

  const int cuts_;
  const std::size_t rows_;
  std::vector<std::uint8_t> made_;  // [stage * rows + row]: Bits of what left for another rank
  std::vector<StageEdges> edges_;   // by stage
  std::vector<Cursor> cursors_;     // by rank
};

}  // namespace

Schedule AddCommunication(const Schedule& schedule) {
  constexpr std::uint32_t kTransfers = OpBit(Op::kSendForward) | OpBit(Op::kRecvForward) |
                                       OpBit(Op::kSendBackward) | OpBit(Op::kRecvBackward);
  if (HasOps(schedule, kTransfers)) return schedule;
  return WithLanes(schedule, Lowering(schedule).Run());
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
