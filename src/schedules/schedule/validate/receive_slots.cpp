#include "schedule/validate/receive_slots.h"

#include <functional>
#include <queue>

#include "base/index.h"
#include "schedule/deps.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

// Calls receive(rank, position, Part) for each RECV, and release(rank, kind, position of the RECV)
// after the last action that reads its message.
template <class Receive, class Release>
void ForEachInterval(const Schedule& schedule, const Receive& receive, const Release& release) {
  const std::size_t indices = Index(schedule.indices());
  std::vector<int> held(2 * Index(schedule.stages()) * indices, ReceiveSlots::kNone);
  const auto at = [&](const Part& part, ValueKind kind) -> int& {
    return held[2 * (Index(part.stage) * indices + Index(part.microbatch)) + Index(kind)];
  };
  for (std::size_t rank = 0; rank < schedule.lanes.size(); ++rank) {
    const Lane& lane = schedule.lanes[rank];
    for (std::size_t i = 0; i < lane.size(); ++i) {
      if (IsRecv(lane[i].first.op)) {
        at(lane[i].first, MessageOf(lane[i].first).kind) = static_cast<int>(i);
        receive(rank, i, lane[i].first);
      }
      ForEachPart(lane[i], [&](const Part& part) {
        if (!EndsMicrobatch(schedule.backward_of(part.stage), part.op)) return;
        for (const ValueKind kind : {ValueKind::kActivation, ValueKind::kGradient}) {
          const int position = at(part, kind);
          if (position != ReceiveSlots::kNone) release(rank, kind, Index(position));
        }
      });
    }
  }
}

// The RECVs that occupy the slots of a rank, by kind and slot: positions in its lane, or kNone.
using Holders = std::array<std::vector<int>, 2>;

// Gives a slot to a RECV. Returns what is wrong with it, or an empty string.
std::string Occupy(const Lane& lane, int position, int slot, Holders& holders) {
  std::vector<int>& own = holders[Index(MessageOf(lane[Index(position)].first).kind)];
  if (slot < 0 || Index(slot) >= own.size()) {
    return fmt::format("there are {} slots, and none has the number {}", own.size(), slot);
  }
  if (own[Index(slot)] != ReceiveSlots::kNone) {
    return fmt::format("{} still occupies slot {}", ToText(lane[Index(own[Index(slot)])]), slot);
  }
  own[Index(slot)] = position;
  return "";
}

}  // namespace

ReceiveSlots AssignReceiveSlots(const Schedule& schedule) {
  using FreeSlots = std::priority_queue<int, std::vector<int>, std::greater<>>;
  std::vector<std::array<FreeSlots, 2>> free(schedule.lanes.size());
  ReceiveSlots result;
  result.count.resize(schedule.lanes.size());
  for (const Lane& lane : schedule.lanes) {
    result.slots.emplace_back(lane.size(), ReceiveSlots::kNone);
  }
  ForEachInterval(
      schedule,
      [&](std::size_t rank, std::size_t i, const Part& part) {
        const std::size_t kind = Index(MessageOf(part).kind);
        FreeSlots& own = free[rank][kind];
        if (own.empty()) own.push(result.count[rank][kind]++);
        result.slots[rank][i] = own.top();
        own.pop();
      },
      [&](std::size_t rank, ValueKind kind, std::size_t i) {
        free[rank][Index(kind)].push(result.slots[rank][i]);
      });
  return result;
}

Status CheckReceiveSlots(const Schedule& schedule, const ReceiveSlots& slots) {
  std::vector<Holders> holders(schedule.lanes.size());
  bool fits = slots.slots.size() == holders.size() && slots.count.size() == holders.size();
  for (std::size_t rank = 0; fits && rank < holders.size(); ++rank) {
    fits = slots.slots[rank].size() == schedule.lanes[rank].size();
    for (const std::size_t kind : {0, 1}) {
      holders[rank][kind].assign(Index(slots.count[rank][kind]), ReceiveSlots::kNone);
    }
  }
  if (!fits) return InvalidArgument("receive slots that do not have one entry per action");
  Status status;
  ForEachInterval(
      schedule,
      [&](std::size_t rank, std::size_t i, const Part& part) {
        if (!status) return;
        const std::string reason =
            Occupy(schedule.lanes[rank], static_cast<int>(i), slots.slots[rank][i], holders[rank]);
        if (reason.empty()) return;
        status = InvalidArgument("rank {}, position {}, {}: {}", rank, i, ToText(part), reason);
      },
      [&](std::size_t rank, ValueKind kind, std::size_t i) {
        if (status) {
          holders[rank][Index(kind)][Index(slots.slots[rank][i])] = ReceiveSlots::kNone;
        }
      });
  return status;
}

}  // namespace penstock
