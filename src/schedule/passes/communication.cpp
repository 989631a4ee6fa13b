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

#include "schedule/deps.h"
#include "schedule/passes/passes.h"

namespace penstock {
namespace {

constexpr std::uint8_t Bit(ValueKind kind) { return static_cast<std::uint8_t>(1U << int(kind)); }

class CommunicationPass {
 public:
  explicit CommunicationPass(const Schedule& schedule)
      : schedule_(schedule),
        shape_(ChainShape::Of(schedule)),
        rows_(static_cast<std::size_t>(schedule.rows())),
        made_(rows_ * static_cast<std::size_t>(schedule.stages())),
        position_(schedule.lanes.size()),
        waits_for_(schedule.lanes.size(), kNothing),
        wait_bit_(schedule.lanes.size()) {}

  std::vector<Lane> Run() {
    ReserveLanes();
    std::vector<int> tick, next;
    for (int rank = 0; rank < schedule_.ranks(); ++rank) next.push_back(rank);
    while (!next.empty()) {
      tick.swap(next);
      next.clear();
      done_.clear();
      for (const int rank : tick) Advance(rank);
      // What a tick made is there from the next one on.
      for (const Done& done : done_) {
        ForEachPart(done.action, [&](const Part& part) { Publish(done.rank, part, next); });
        if (position_[Index(done.rank)] < schedule_.lanes[Index(done.rank)].size()) {
          next.push_back(done.rank);
        }
      }
    }
    for (std::size_t rank = 0; rank < position_.size(); ++rank) {
      PENSTOCK_CHECK(position_[rank] == schedule_.lanes[rank].size(),
                     "rank {} waits forever: the schedule is not valid", rank);
    }
    return std::move(lanes_);
  }

 private:
  static constexpr std::size_t kNothing = ~std::size_t{0};
  static std::size_t Index(int i) { return static_cast<std::size_t>(i); }
  std::size_t Key(int stage, int row) const { return Index(stage) * rows_ + Index(row); }

  // Every stage sends and receives once each way for each row, but at ends of chains and in ranks.
  void ReserveLanes() {
    const Placement& placement = schedule_.placement;
    for (int rank = 0; rank < schedule_.ranks(); ++rank) {
      std::size_t cells = schedule_.lanes[Index(rank)].size();
      for (const int stage : placement.stages_of(rank)) {
        for (const int other : {placement.previous(stage), placement.next(stage)}) {
          if (other >= 0 && placement.rank_of(other) != rank) cells += 2 * rows_;
        }
      }
      lanes_.emplace_back().reserve(cells);
    }
  }

  // Emits the rank's next compute action if it can start, and all others on the way to it.
  void Advance(int rank) {
    const Lane& lane = schedule_.lanes[Index(rank)];
    std::size_t& position = position_[Index(rank)];
    while (position < lane.size()) {
      const Action& action = lane[position];
      if (IsCompute(action) && !Ready(rank, action)) return;
      lanes_[Index(rank)].push_back(action);
      ++position;
      if (IsCompute(action)) {
        done_.push_back({rank, action});
        return;
      }
    }
  }

  bool Ready(int rank, const Action& action) {
    bool ready = true;
    ForEachPart(action, [&](const Part& part) {
      ForEachDependency(shape_, part, [&](const Value& value) {
        const std::size_t key = Key(value.stage, value.microbatch);
        if (!ready || (made_[key] & Bit(value.kind)) != 0) return;
        ready = false;
        waits_for_[Index(rank)] = key;
        wait_bit_[Index(rank)] = Bit(value.kind);
      });
    });
    return ready;
  }

  void Publish(int rank, const Part& part, std::vector<int>& next) {
    if (part.op == Op::kBackwardWeight) return;
    const bool forward = part.op == Op::kForward;
    const std::size_t key = Key(part.stage, part.microbatch);
    const std::uint8_t bit = Bit(MadeBy(part.op));
    made_[key] |= bit;
    const Placement& placement = schedule_.placement;
    const int consumer = forward ? placement.next(part.stage) : placement.previous(part.stage);
    if (consumer < 0 || placement.rank_of(consumer) == rank) return;
    const int peer = placement.rank_of(consumer);
    lanes_[Index(rank)].push_back(
        MakeAction(forward ? Op::kSendForward : Op::kSendBackward, part.stage, part.microbatch));
    lanes_[Index(peer)].push_back(
        MakeAction(forward ? Op::kRecvForward : Op::kRecvBackward, consumer, part.microbatch));
    if (waits_for_[Index(peer)] == key && wait_bit_[Index(peer)] == bit) {
      waits_for_[Index(peer)] = kNothing;
      next.push_back(peer);
    }
  }

  struct Done {
    int rank;
    Action action;
  };

  const Schedule& schedule_;
  const ChainShape shape_;
  const std::size_t rows_;
  std::vector<std::uint8_t> made_;      // [stage * rows + row]: Bit of what is there
  std::vector<std::size_t> position_;   // of each rank in its lane
  std::vector<std::size_t> waits_for_;  // the value a blocked rank waits for, as its Key
  std::vector<std::uint8_t> wait_bit_;
  std::vector<Done> done_;  // of the current tick
  std::vector<Lane> lanes_;
};

bool HasCommunication(const Schedule& schedule) {
  for (const Lane& lane : schedule.lanes) {
    for (const Action& action : lane) {
      if (IsCommunication(action.first.op)) return true;
    }
  }
  return false;
}

}  // namespace

Schedule AddCommunication(const Schedule& schedule) {
  if (HasCommunication(schedule)) return schedule;
  Schedule lowered;
  lowered.algorithm = schedule.algorithm;
  lowered.placement = schedule.placement;
  lowered.microbatches = schedule.microbatches;
  lowered.cuts = schedule.cuts;
  lowered.steps = schedule.steps;
  lowered.weights = schedule.weights;
  lowered.lanes = CommunicationPass(schedule).Run();
  return lowered;
}

}  // namespace penstock
