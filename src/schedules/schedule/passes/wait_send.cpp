// Adds WAIT_SENDs, so that a rank frees what it has sent before the end of the step.
//
//   before      0F0 0SEND_F0 0F1 0SEND_F1 0F2 0SEND_F2 0B0 0B1
//   after       0F0 0SEND_F0 0F1 0SEND_F1 0F2 0SEND_F2 0B0 0WAIT_SEND_F0 0B1 0WAIT_SEND_F1 ...
//   budget 1    0F0 0SEND_F0 0F1 0WAIT_SEND_F0 0SEND_F1 0F2 0WAIT_SEND_F1 0SEND_F2 0B0 0B1 ...
//
// A rank knows that a message was received once it has another one that was sent by an action after
// the reader: the input of B0 says that the next stage has read the output of F0. Such a wait takes
// no time, and precedes the next action that computes. Apart from these, a rank waits only before a
// SEND that exceeds the budget, for the message that was first both sent and expected, and at the
// end.
//
// Such a wait blocks the rank until the other rank posts the RECV, so it might deadlock. Therefore
// the pass runs the schedule, in order of time, and a rank waits only for a RECV that this run has
// posted. The order of this run has every action after what it waits for, so no wait can deadlock.
// Whether a SEND may run depends only on how many RECVs are posted by then, so if this run stops,
// every other order would, too. STEPs of replicas, which also wait for each other, wait for
// gradients of their batch: all messages of the batch are received before them.
// torch.distributed.pipelining 2.15: _add_wait_send, _add_wait_send_budget.
#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <queue>

#include "base/index.h"
#include "schedule/passes/lanes.h"
#include "schedule/passes/pass_table.h"
#include "schedule/stage_edges.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

using Tick = std::int32_t;
constexpr Tick kNotYet = -1;
constexpr std::size_t kNothing = ~std::size_t{0};

// What is known about one message.
struct MessageState {
  Tick sent = kNotYet;
  Tick posted = kNotYet;  // its RECV
  int sent_at = -1;       // position of the SEND in its lane
  int read_at = -1;       // position of the action that reads it in that action's lane
};

class WaitPlacer {
 public:
  WaitPlacer(const Schedule& schedule, int budget)
      : schedule_(schedule),
        budget_(Index(budget)),
        edges_(EdgesOf(schedule)),
        messages_(2 * Index(schedule.stages()) * Index(schedule.indices())),
        ranks_(schedule.lanes.size()) {}

  Result<std::vector<Lane>> Run() {
    for (int rank = 0; rank < schedule_.ranks(); ++rank) turns_.push({0, rank});
    while (!turns_.empty()) {
      const int rank = turns_.top().second;
      turns_.pop();
      Advance(rank);
    }
    PENSTOCK_TRY_STATUS(CheckDone());
    std::vector<Lane> lanes;
    for (RankState& state : ranks_) {
      for (Peer& peer : state.peers) {
        for (Sends& sends : peer.sends) {
          while (!sends.empty()) Wait(sends, 0, state);
        }
      }
      lanes.push_back(std::move(state.out));
    }
    return lanes;
  }

 private:
  // The SENDs to one rank that are in flight, oldest first.
  using Sends = std::deque<Part>;
  struct Peer {
    int rank = -1;
    std::array<Sends, 2> sends;  // by ValueKind
    int known = -1;              // this rank has messages of actions of the other's lane up to here
  };
  struct RankState {
    std::size_t position = 0;
    Tick clock = 0;
    std::size_t waits_for = kNothing;  // a message, by Key
    bool over_budget = false;          // waits for any RECV of its messages
    std::size_t in_flight = 0;
    std::vector<Peer> peers;
    Lane out;
  };

  std::size_t Key(const Value& value) const {
    return 2 * (Index(value.stage) * Index(schedule_.indices()) + Index(value.microbatch)) +
           Index(value.kind);
  }

  // Runs the rank's lane up to the end of its next action that occupies it, or until it must wait.
  void Advance(int rank) {
    RankState& state = ranks_[rank];
    const Lane& lane = schedule_.lanes[rank];
    while (state.position < lane.size()) {
      const Action& action = lane[state.position];
      const Part& part = action.first;
      if (IsSend(part.op)) {
        if (!Send(rank, part)) return;
      } else if (IsRecv(part.op)) {
        Post(part, state.clock);
      } else if (OccupiesRank(part.op)) {
        if (!Compute(rank, action)) return;
        ++state.position;
        turns_.push({state.clock, rank});
        return;
      }
      state.out.push_back(action);
      ++state.position;
    }
  }

  bool Compute(int rank, const Action& action) {
    RankState& state = ranks_[rank];
    Tick start = state.clock;
    if (!ForEachMessage(rank, action, [&](std::size_t key, int) {
          if (messages_[key].sent == kNotYet) state.waits_for = key;
          start = std::max(start, messages_[key].sent);
          return messages_[key].sent != kNotYet;
        })) {
      return false;
    }
    WaitForKnown(state);
    ForEachMessage(rank, action, [&](std::size_t key, int from) {
      messages_[key].read_at = static_cast<int>(state.position);
      Peer& peer = PeerOf(state, from);
      peer.known = std::max(peer.known, messages_[key].sent_at);
      return true;
    });
    state.clock = start + 1;
    state.out.push_back(action);
    return true;
  }

  // Calls visit(Key, rank that sends it) for each message that the action reads, while it returns
  // true. Returns whether it always did.
  template <class Visit>
  bool ForEachMessage(int rank, const Action& action, const Visit& visit) const {
    bool all = true;
    ForEachPart(action, [&](const Part& part) {
      ForEachDependency(edges_[part.stage].neighbors, schedule_.slices, part,
                        [&](const Value& value) {
                          const int from = edges_[value.stage].rank;
                          if (from != rank) all = all && visit(Key(value), from);
                        });
    });
    return all;
  }

  static Peer& PeerOf(RankState& state, int rank) {
    for (Peer& peer : state.peers) {
      if (peer.rank == rank) return peer;
    }
    Peer& peer = state.peers.emplace_back();
    peer.rank = rank;
    return peer;
  }

  // Waits for messages that the other rank has read before it sent what this rank has.
  void WaitForKnown(RankState& state) const {
    for (Peer& peer : state.peers) {
      for (Sends& sends : peer.sends) {
        while (!sends.empty()) {
          const int read_at = messages_[Key(MessageOf(sends.front()))].read_at;
          if (read_at < 0 || read_at > peer.known) break;
          Wait(sends, 0, state);
        }
      }
    }
  }

  static void Wait(Sends& sends, std::size_t index, RankState& state) {
    Part wait = sends[index];
    wait.op = wait.op == Op::kSendForward ? Op::kWaitSendForward : Op::kWaitSendBackward;
    state.out.push_back({wait, {}});
    sends.erase(sends.begin() + static_cast<std::ptrdiff_t>(index));
    --state.in_flight;
  }

  // Returns false if the budget does not admit another SEND yet.
  bool Send(int rank, const Part& part) {
    RankState& state = ranks_[rank];
    state.over_budget = state.in_flight >= budget_ && !WaitForFirst(state);
    if (state.over_budget) return false;
    const StageEdges& edges = edges_[part.stage];
    const int to = part.op == Op::kSendForward ? edges.next_rank : edges.gradient_to;
    const std::size_t key = Key(MessageOf(part));
    messages_[key].sent = state.clock;
    messages_[key].sent_at = static_cast<int>(state.position);
    PeerOf(state, to).sends[Index(MessageOf(part).kind)].push_back(part);
    ++state.in_flight;
    if (ranks_[to].waits_for == key) Wake(to, state.clock);
    return true;
  }

  // Waits for the message in flight that was first sent and its RECV posted, if any was.
  bool WaitForFirst(RankState& state) const {
    Sends* first = nullptr;
    std::size_t index = 0;
    Tick earliest = std::numeric_limits<Tick>::max();
    for (Peer& peer : state.peers) {
      for (Sends& sends : peer.sends) {
        for (std::size_t i = 0; i < sends.size(); ++i) {
          const MessageState& message = messages_[Key(MessageOf(sends[i]))];
          const Tick done = std::max(message.posted, message.sent);
          if (message.posted == kNotYet || done >= earliest) continue;
          first = &sends;
          index = i;
          earliest = done;
        }
      }
    }
    if (first == nullptr) return false;
    Wait(*first, index, state);
    state.clock = std::max(state.clock, earliest);
    return true;
  }

  void Post(const Part& part, Tick time) {
    const Value value = MessageOf(part);
    MessageState& message = messages_[Key(value)];
    message.posted = time;
    const int sender = edges_[value.stage].rank;
    if (message.sent != kNotYet && ranks_[sender].over_budget) Wake(sender, time);
  }

  void Wake(int rank, Tick time) {
    RankState& state = ranks_[rank];
    state.waits_for = kNothing;
    state.over_budget = false;
    turns_.push({std::max(state.clock, time), rank});
  }

  Status CheckDone() const {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const RankState& state = ranks_[r];
      if (!state.over_budget) continue;
      return MakeError(ErrorCode::kInfeasible,
                       "rank {}, position {} ({}): {} SENDs of the rank are in flight, and none of "
                       "them is received before this one is sent; give a larger budget",
                       r, state.position, ToText(schedule_.lanes[r][state.position]), budget_);
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      PENSTOCK_CHECK(ranks_[r].position == schedule_.lanes[r].size(),
                     "rank {} waits forever: the schedule is not valid", r);
    }
    return {};
  }

  const Schedule& schedule_;
  const std::size_t budget_;
  const std::vector<StageEdges> edges_;
  std::vector<MessageState> messages_;  // by Key of the value
  std::vector<RankState> ranks_;
  using Turn = std::pair<Tick, int>;  // when a rank continues
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns_;
};

}  // namespace

Result<Schedule> AddWaitSends(const Schedule& schedule, const WaitSendOptions& options) {
  const int budget = options.budget.value_or(std::numeric_limits<int>::max());
  if (budget < 1) return InvalidArgument("a budget of {} SENDs: must be at least 1", budget);
  if (schedule.vocabulary) {
    return InvalidArgument("ranks of a sharded vocabulary exchange values without SENDs");
  }
  if (HasWaitSend(schedule)) return schedule;
  const Schedule lowered = AddCommunication(schedule);
  PENSTOCK_TRY(std::vector<Lane> lanes, WaitPlacer(lowered, budget).Run());
  return WithLanes(lowered, std::move(lanes));
}

Schedule WithoutWaits(const Schedule& schedule) {
  std::vector<Lane> lanes = schedule.lanes;
  for (Lane& lane : lanes) {
    std::erase_if(lane, [](const Action& action) { return IsWait(action.first.op); });
  }
  return WithLanes(schedule, std::move(lanes));
}

SchedulePass WaitSendPass() {
  return {"wait-send", "[BUDGET]",
          "WAIT_SEND once a rank knows that its message was received, before a SEND that exceeds "
          "BUDGET in flight, or at the end",
          [](const Schedule& schedule, PassArguments arguments,
             const PassContext&) -> Result<Schedule> {
            const WaitSendOptions options{.budget = arguments.TakeCount()};
            PENSTOCK_TRY_STATUS(arguments.Done());
            return AddWaitSends(schedule, options);
          }};
}

}  // namespace penstock
