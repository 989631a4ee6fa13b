// Random changes of a schedule, which may or may not leave it valid.
#pragma once

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/index.h"
#include "schedule/schedule.h"

namespace penstock::testing {

// Returns another op of the same kind: compute, transfers, shards, or memory.
template <class Random>
Op Exchange(Op op, Random& random) {
  constexpr int kFirst[] = {0,
                            static_cast<int>(Op::kSendForward),
                            static_cast<int>(Op::kUnshard),
                            static_cast<int>(Op::kOffload),
                            static_cast<int>(Op::kStep),
                            static_cast<int>(Op::kEmbed),
                            kOpCount};
  const auto* end = std::upper_bound(std::begin(kFirst), std::end(kFirst), static_cast<int>(op));
  const auto size = static_cast<unsigned>(*end - *(end - 1));
  return static_cast<Op>(*(end - 1) + static_cast<int>(random() % size));
}

// Drops, copies, swaps, moves or changes one action.
template <class Random>
void Mutate(Schedule& schedule, Random& random) {
  const auto pick = [&](std::size_t below) { return Index(random() % below); };
  const auto number = [&](int below) { return static_cast<int>(pick(std::size_t(below))); };
  Lane& lane = schedule.lanes[pick(schedule.lanes.size())];
  Lane& other = random() % 4 == 0 ? schedule.lanes[pick(schedule.lanes.size())] : lane;
  if (lane.empty()) return;
  const std::size_t from = pick(lane.size());
  const Action action = lane[from];
  const auto erase = [&] { lane.erase(lane.begin() + static_cast<std::ptrdiff_t>(from)); };
  const auto insert = [&] {
    other.insert(other.begin() + static_cast<std::ptrdiff_t>(pick(other.size() + 1)), action);
  };
  Part& part = action.is_pair() && random() % 2 == 0 ? lane[from].second : lane[from].first;
  switch (random() % 9) {
    case 0:
      return erase();
    case 1:
      return insert();
    case 2:
      return std::swap(lane[from], lane[pick(lane.size())]);
    case 3:
      erase();
      return insert();
    case 4:  // a little later or earlier
    case 5: {
      const std::size_t to = std::min(from + 1 + pick(3), lane.size() - 1);
      return std::swap(lane[from], lane[to]);
    }
    case 6:
      part.stage = static_cast<std::uint16_t>(number(schedule.stages()));
      return;
    case 7:
      part.op = Exchange(part.op, random);
      return;
    default:
      if (part.microbatch >= 0) part.microbatch = number(schedule.indices());
  }
}

}  // namespace penstock::testing
